package quota_test

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // the zones below, wherever the tests run

	"pgregory.net/rapid"

	"github.com/headgate-go/headgate/budget/quota"
)

// Zones with every kind of change that there was: midnights skipped and doubled,
// days skipped and repeated, half an hour, other offsets than full hours, changes
// of the offset without summer time, summer time that stands still in Ramadan,
// winter time as the exception, and none.
var unusualZones = []string{
	"UTC", "America/New_York", "Europe/Dublin", "Africa/Cairo", "Africa/Casablanca", "America/Sao_Paulo",
	"America/Asuncion", "America/Havana", "America/St_Johns", "America/Caracas", "Asia/Beirut", "Asia/Gaza",
	"Asia/Tehran", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Tokyo", "Australia/Lord_Howe", "Pacific/Apia",
	"Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Kwajalein", "Antarctica/Troll", "America/Metlakatla",
}

func calendarWindows(z *time.Location) []quota.Window {
	ws := []quota.Window{quota.Minute, quota.Hour, quota.Day, quota.Week, quota.Month}
	for _, day := range []int{2, 15, 28, 29, 30, 31} {
		ws = append(ws, quota.Month.Anchored(day))
	}
	for i := range ws {
		ws[i] = ws[i].In(z)
	}
	return ws
}

// tiles returns an error unless the windows around at are as they should be.
func tiles(w quota.Window, at time.Time) error {
	s := w.Spans(at)
	here := s[1]
	switch {
	case here != w.Span(at):
		return fmt.Errorf("Spans says %v, Span %v", here, w.Span(at))
	case !here.Contains(at):
		return fmt.Errorf("%v does not contain it", here)
	case !here.End.After(at):
		return fmt.Errorf("%v does not end strictly later", here)
	case s[0].End != here.Start || here.End != s[2].Start:
		return fmt.Errorf("the windows %v do not follow each other", s)
	case s[0] != w.Span(here.Start.Add(-1)):
		return fmt.Errorf("the window before is %v, but an instant earlier it is %v", s[0], w.Span(here.Start.Add(-1)))
	case s[2] != w.Span(here.End):
		return fmt.Errorf("the window after is %v, but at its start it is %v", s[2], w.Span(here.End))
	case here != w.Span(here.Start) || here != w.Span(here.End.Add(-1)):
		return fmt.Errorf("at its ends the window %v is another one", here)
	}
	for _, span := range s {
		if !span.Start.Before(span.End) {
			return fmt.Errorf("the window %v is empty", span)
		}
	}
	return nil
}

func TestCalendarWindowsTileTime(t *testing.T) {
	t.Parallel()
	windows := make(map[string][]quota.Window)
	for _, name := range unusualZones {
		windows[name] = calendarWindows(zone(t, name))
	}
	first, last := time.Date(1965, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(windows[rapid.SampledFrom(unusualZones).Draw(t, "zone")]).Draw(t, "window")
		at := time.Unix(rapid.Int64Range(first, last).Draw(t, "second"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanosecond"))
		if err := tiles(w, at); err != nil {
			t.Fatalf("%v, at %v: %v", w, at.UTC(), err)
		}
	})
}

// changes are the instants at which a zone's clock was changed.
func changes(z *time.Location, from, to time.Time) (all []time.Time) {
	for at := from.In(z); ; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.After(to) {
			return all
		}
		all = append(all, end)
		at = end
	}
}

// The reference walks through time minute by minute and knows nothing but what the
// clock shows. A day, week or month begins when the latest date shown so far
// enters the next one; a minute or hour when the clock shows a full one, or was
// changed.
func TestCalendarWindowsAgreeWithAClockThatIsWatched(t *testing.T) {
	t.Parallel()
	from, to := time.Date(1985, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range unusualZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := zone(t, name)
			at := changes(z, from, to)
			if len(at) > 16 {
				at = at[len(at)-16:] // about eight years
			}
			for _, around := range []string{"2024-02-29T12:00:00Z", "2026-12-31T12:00:00Z"} {
				at = append(at, instant(t, around))
			}
			for _, change := range at {
				watch(t, z, change)
			}
		})
	}
}

// watch compares around a change of the clock.
func watch(t *testing.T, z *time.Location, change time.Time) {
	const before, after = 32 * time.Hour, 26 * time.Hour
	clocks := []*watched{
		{window: quota.Minute, begins: func(time.Time, bool) bool { return true }},
		{window: quota.Hour, begins: func(at time.Time, changed bool) bool { return at.Minute() == 0 || changed }},
		{window: quota.Day, period: func(at time.Time) int { return at.Year()*1000 + at.YearDay() }},
		{window: quota.Week, period: func(at time.Time) int { year, week := at.ISOWeek(); return year*100 + week }},
		{window: quota.Month, period: monthShown(1)},
	}
	for _, day := range []int{2, 15, 28, 29, 30, 31} {
		clocks = append(clocks, &watched{window: quota.Month.Anchored(day), period: monthShown(day)})
	}
	start := change.Add(-2 * before).Truncate(time.Hour).In(z)
	_, offset := start.Zone()
	step := time.Minute
	for at := start; at.Before(change.Add(after)); at = at.Add(step) {
		_, now := at.Zone()
		changed := now != offset
		offset = now
		near := at.Sub(change).Abs() < 65*time.Minute
		if step = time.Minute; !near {
			step = 5 * time.Minute
		}
		for _, c := range clocks {
			begun := c.step(at, changed)
			// At first it is not known when the window has begun; later on, most
			// instants are like the one before.
			if c.started.Equal(start) || at.Before(change.Add(-before)) || !begun && (!near || at.Minute()%7 != 0) {
				continue
			}
			if c.window == quota.Minute && at.Sub(change).Abs() > 3*time.Minute {
				continue
			}
			w := c.window.In(z)
			if got := w.Span(at); !got.Start.Equal(c.started) {
				t.Fatalf("%v: at %v it has begun at %v, want %v", w, at, got.Start.In(z), c.started)
			}
			if begun {
				if err := tiles(w, at); err != nil {
					t.Fatalf("%v, at %v: %v", w, at, err)
				}
			}
		}
	}
}

// watched is what an onlooker makes of the clock for one window.
type watched struct {
	window quota.Window
	// One of the two: whether a window begins, or the number of the one shown.
	begins func(at time.Time, changed bool) bool
	period func(at time.Time) int

	latest  int
	started time.Time
}

func (c *watched) step(at time.Time, changed bool) (begun bool) {
	if c.period == nil {
		begun = c.begins(at, changed)
	} else if shown := c.period(at); shown > c.latest {
		c.latest, begun = shown, true
	}
	if begun || c.started.IsZero() {
		c.started = at
	}
	return begun
}

// monthShown numbers the months that begin on an anchor day: one has begun when the
// day is reached, or when it is the last of a month.
func monthShown(anchor int) func(time.Time) int {
	return func(at time.Time) int {
		year, month, day := at.Date()
		tomorrow := time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		if day >= anchor || tomorrow.Month() != month {
			return year*12 + int(month)
		}
		return year*12 + int(month) - 1
	}
}

func TestNoMinuteOrHourIsLongerThanItsName(t *testing.T) {
	t.Parallel()
	from, to := time.Date(1930, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range append([]string{"Africa/Monrovia", "Europe/Amsterdam"}, unusualZones...) {
		z := zone(t, name)
		for _, change := range changes(z, from, to) {
			for _, w := range []quota.Window{quota.Minute.In(z), quota.Hour.In(z)} {
				for _, at := range []time.Time{change.Add(-1), change, change.Add(40 * time.Minute)} {
					if err := tiles(w, at); err != nil {
						t.Errorf("%v, at %v: %v", w, at, err)
					}
					if s := w.Span(at); s.End.Sub(s.Start) > w.Per() {
						t.Errorf("%v: %v is longer than %v", w, s, w.Per())
					}
				}
			}
		}
	}
}

// Package time gets the ends of leap years wrong, once the rules of a zone are all
// that there is.
func TestWindowsAroundTheEndsOfAllYears(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"America/New_York", "Pacific/Chatham", "Africa/Cairo"} {
		z := zone(t, name)
		for _, w := range []quota.Window{quota.Hour.In(z), quota.Day.In(z), quota.Month.Anchored(31).In(z)} {
			for year := 1999; year < 9999; year++ {
				if year == 2101 {
					year = 9899
				}
				for hour := 0; hour < 3*24; hour += 5 {
					if err := tiles(w, time.Date(year, 12, 30, hour, 30, 0, 0, time.UTC)); err != nil {
						t.Fatalf("%v, at the end of %d: %v", w, year, err)
					}
				}
			}
		}
	}
	day := quota.Day.In(zone(t, "America/New_York"))
	got := day.Span(instant(t, "2040-12-31T12:00:00Z"))
	if want := (quota.Span{Start: instant(t, "2040-12-31T05:00:00Z"), End: instant(t, "2041-01-01T05:00:00Z")}); got != want {
		t.Errorf("the last day of 2040 is %v, want %v", got, want)
	}
}

// Far from today, and at the edges of what years can be, methods end and tile as
// they do elsewhere.
func TestWindowsOfFarYears(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Pacific/Apia", "Africa/Cairo"} {
		for _, w := range calendarWindows(zone(t, name)) {
			for _, at := range []time.Time{
				time.Date(1, 2, 1, 0, 0, 0, 0, time.UTC),
				time.Date(1582, 10, 10, 0, 0, 0, 0, time.UTC),
				time.Date(9999, 9, 30, 23, 59, 59, 0, time.UTC),
			} {
				if err := tiles(w, at); err != nil {
					t.Errorf("%v, at %v: %v", w, at, err)
				}
			}
			low, high := w.Spans(time.Unix(-1<<62, 0)), w.Spans(time.Unix(1<<62, 0))
			if !low[1].Contains(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)) {
				t.Errorf("%v: before year 1 the window is %v", w, low[1])
			}
			if !high[1].Contains(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)) {
				t.Errorf("%v: after year 9999 the window is %v", w, high[1])
			}
		}
	}
}
