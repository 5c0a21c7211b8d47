package quota_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The instants are those of the laws and decrees that changed the clocks, not
// computed here.
func TestDayBeginsWhenItsDateIsFirstShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, zone, at, start, end string
	}{
		{"plain", "UTC", "2026-07-31T12:00:00Z", "2026-07-31T00:00:00Z", "2026-08-01T00:00:00Z"},
		{"far east", "Asia/Tokyo", "2026-07-31T14:59:59Z", "2026-07-30T15:00:00Z", "2026-07-31T15:00:00Z"},
		{"forward at noon's side of midnight", "America/New_York", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"back after midnight", "America/New_York", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},

		// 00:00 does not exist: the day begins at 01:00.
		{"forward at midnight", "Africa/Cairo", "2024-04-26T09:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		{"forward at midnight", "America/Sao_Paulo", "2018-11-04T09:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"forward at midnight", "America/Havana", "2024-03-10T09:00:00Z", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z"},
		{"forward at midnight", "Asia/Beirut", "2022-03-27T09:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z"},
		{"forward at midnight", "Asia/Tehran", "2022-03-22T09:00:00Z", "2022-03-21T20:30:00Z", "2022-03-22T19:30:00Z"},

		// 23:00 to 24:00 comes twice: the next day begins after the second.
		{"back to the day before", "Africa/Cairo", "2024-10-31T21:30:00Z", "2024-10-30T21:00:00Z", "2024-10-31T22:00:00Z"},
		{"back to the day before", "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"back to the day before", "Asia/Tehran", "2022-09-21T20:00:00Z", "2022-09-20T19:30:00Z", "2022-09-21T20:30:00Z"},

		// 00:00 comes twice: the day begins with the first.
		{"midnight twice", "America/Havana", "2024-11-03T05:30:00Z", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		// The new date was shown for a minute, then the old one again for 59.
		{"a minute of the new day", "America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"the old day again", "America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"the day that ended early", "America/St_Johns", "2010-11-07T02:29:59Z", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z"},

		// There was no 30 December 2011 in Samoa.
		{"the day before the skipped one", "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"the day after the skipped one", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		// Kwajalein was on 20 August 1993 for 24 hours, then on the 22nd.
		{"the day after the skipped one", "Pacific/Kwajalein", "1993-08-21T12:00:00Z", "1993-08-21T12:00:00Z", "1993-08-22T12:00:00Z"},
	} {
		got := quota.Day.In(zone(t, c.zone)).Span(instant(t, c.at))
		want := quota.Span{Start: instant(t, c.start), End: instant(t, c.end)}
		if got != want {
			t.Errorf("%s, %s: the day of %s is\n %v, want\n %v", c.zone, c.what, c.at, got, want)
		}
	}
}

func TestHoursAndMinutesFollowTheZonesClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what          string
		window        quota.Window
		zone          string
		at            string
		start, length string
	}{
		{"UTC", quota.Hour, "UTC", "2026-01-01T12:34:56.789Z", "2026-01-01T12:00:00Z", "1h"},
		{"5:45 ahead", quota.Hour, "Asia/Kathmandu", "2026-01-01T12:34:56Z", "2026-01-01T12:15:00Z", "1h"},
		{"5:45 ahead", quota.Hour, "Asia/Kathmandu", "2026-01-01T12:14:59Z", "2026-01-01T11:15:00Z", "1h"},
		{"3:30 ahead", quota.Hour, "Asia/Tehran", "2026-01-01T12:34:56Z", "2026-01-01T12:30:00Z", "1h"},
		{"5:45 ahead", quota.Minute, "Asia/Kathmandu", "2026-01-01T12:34:56Z", "2026-01-01T12:34:00Z", "1m"},
		{"the hour before 2:00 becomes 3:00", quota.Hour, "America/New_York", "2026-03-08T06:59:59Z", "2026-03-08T06:00:00Z", "1h"},
		{"the hour after", quota.Hour, "America/New_York", "2026-03-08T07:00:00Z", "2026-03-08T07:00:00Z", "1h"},
		{"1:00 to 2:00, summer time", quota.Hour, "America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T05:00:00Z", "1h"},
		{"1:00 to 2:00 again", quota.Hour, "America/New_York", "2026-11-01T06:30:00Z", "2026-11-01T06:00:00Z", "1h"},
		// Lord Howe changes its clock by half an hour: 2:00 becomes 2:30 in October,
		// and 1:30 in April.
		{"before 2:00 becomes 2:30", quota.Hour, "Australia/Lord_Howe", "2025-10-04T15:00:00Z", "2025-10-04T14:30:00Z", "1h"},
		{"2:30 to 3:00", quota.Hour, "Australia/Lord_Howe", "2025-10-04T15:30:00Z", "2025-10-04T15:30:00Z", "30m"},
		{"3:00 to 4:00", quota.Hour, "Australia/Lord_Howe", "2025-10-04T16:00:00Z", "2025-10-04T16:00:00Z", "1h"},
		{"before 2:00 becomes 1:30", quota.Hour, "Australia/Lord_Howe", "2026-04-04T14:59:00Z", "2026-04-04T14:00:00Z", "1h"},
		{"1:30 to 2:00 again", quota.Hour, "Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-04T15:00:00Z", "30m"},
		{"2:00 to 3:00", quota.Hour, "Australia/Lord_Howe", "2026-04-04T15:30:00Z", "2026-04-04T15:30:00Z", "1h"},
	} {
		got := c.window.In(zone(t, c.zone)).Span(instant(t, c.at))
		length, err := time.ParseDuration(c.length)
		if err != nil {
			t.Fatal(err)
		}
		start := instant(t, c.start)
		if want := (quota.Span{Start: start, End: start.Add(length)}); got != want {
			t.Errorf("%s, %s: the %v of %s is\n %v, want\n %v", c.zone, c.what, c.window, c.at, got, want)
		}
	}
}

func TestMonthBeginsOnItsAnchorDayOrTheLastOne(t *testing.T) {
	t.Parallel()
	const day = "2006-01-02"
	for _, c := range []struct {
		anchor         int
		at, start, end string
	}{
		{1, "2026-02-28", "2026-02-01", "2026-03-01"},
		{15, "2026-02-14", "2026-01-15", "2026-02-15"},
		{15, "2026-02-15", "2026-02-15", "2026-03-15"},
		{28, "2024-02-28", "2024-02-28", "2024-03-28"},
		{29, "2023-02-27", "2023-01-29", "2023-02-28"},
		{29, "2023-02-28", "2023-02-28", "2023-03-29"},
		{29, "2024-02-28", "2024-01-29", "2024-02-29"},
		{29, "2024-02-29", "2024-02-29", "2024-03-29"},
		{30, "2024-02-29", "2024-02-29", "2024-03-30"},
		{30, "2100-02-28", "2100-02-28", "2100-03-30"},
		{30, "2000-02-28", "2000-01-30", "2000-02-29"},
		{31, "2026-01-30", "2025-12-31", "2026-01-31"},
		{31, "2026-01-31", "2026-01-31", "2026-02-28"},
		{31, "2026-02-28", "2026-02-28", "2026-03-31"},
		{31, "2026-03-31", "2026-03-31", "2026-04-30"},
		{31, "2026-04-30", "2026-04-30", "2026-05-31"},
		{31, "2026-12-31", "2026-12-31", "2027-01-31"},
	} {
		at, err := time.Parse(day, c.at)
		if err != nil {
			t.Fatal(err)
		}
		got := quota.Month.Anchored(c.anchor).Span(at.Add(13 * time.Hour))
		if start, end := got.Start.Format(day), got.End.Format(day); start != c.start || end != c.end {
			t.Errorf("anchor %d: the month of %s is %s to %s, want %s to %s", c.anchor, c.at, start, end, c.start, c.end)
		}
	}
}

func TestWeekBeginsOnMonday(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, at, start, end string }{
		{"UTC", "2026-08-02T23:59:59Z", "2026-07-27T00:00:00Z", "2026-08-03T00:00:00Z"},
		{"UTC", "2026-08-03T00:00:00Z", "2026-08-03T00:00:00Z", "2026-08-10T00:00:00Z"},
		{"UTC", "1969-12-31T12:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"},
		{"Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
	} {
		got := quota.Week.In(zone(t, c.zone)).Span(instant(t, c.at))
		if want := (quota.Span{Start: instant(t, c.start), End: instant(t, c.end)}); got != want {
			t.Errorf("%s: the week of %s is\n %v, want\n %v", c.zone, c.at, got, want)
		}
	}
}

// A monthly budget of a customer in Tokyo reopens when August begins in Tokyo, and
// not nine hours later; one in Los Angeles not seven hours early.
func TestMonthReopensInItsOwnZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, last, next string }{
		{"Asia/Tokyo", "2026-07-31T14:59:59.999999999Z", "2026-07-31T15:00:00Z"},
		{"America/Los_Angeles", "2026-08-01T06:59:59.999999999Z", "2026-08-01T07:00:00Z"},
		{"UTC", "2026-07-31T23:59:59.999999999Z", "2026-08-01T00:00:00Z"},
	} {
		w := quota.Month.In(zone(t, c.zone))
		reset := instant(t, c.next)
		if got := w.Span(instant(t, c.last)).End; !got.Equal(reset) {
			t.Errorf("%s: at %s the month resets at %v, want %v", c.zone, c.last, got, reset)
		}
		if got := w.Span(reset).Start; !got.Equal(reset) {
			t.Errorf("%s: at %s the month has begun at %v, want then", c.zone, c.next, got)
		}
	}
}

func TestTheZoneOfTheInstantDoesNotMatter(t *testing.T) {
	t.Parallel()
	at := instant(t, "2026-07-31T14:59:59Z")
	for _, w := range []quota.Window{quota.Minute, quota.Hour, quota.Day, quota.Week, quota.Month.In(zone(t, "Asia/Tokyo"))} {
		want := w.Spans(at)
		for _, l := range []*time.Location{time.Local, zone(t, "Pacific/Apia"), time.FixedZone("", -12345)} {
			if got := w.Spans(at.In(l)); got != want {
				t.Errorf("%v: for an instant in %v the windows are\n %v, want\n %v", w, l, got, want)
			}
		}
	}
}

func TestRollingWindowIsAllTime(t *testing.T) {
	t.Parallel()
	w := quota.Rolling(time.Minute)
	if got := w.Spans(time.Now()); got != [3]quota.Span{} {
		t.Errorf("the spans of a rolling window are %v", got)
	}
	if !w.IsRolling() || quota.Minute.IsRolling() {
		t.Error("IsRolling does not tell a rolling window from a minute")
	}
	if got := w.In(zone(t, "Asia/Tokyo")).InTenantZone(); got != w {
		t.Errorf("in a zone a rolling window is %v, want it unchanged", got)
	}
}

func TestTenantZoneIsPutInWhenItIsKnown(t *testing.T) {
	t.Parallel()
	tokyo := zone(t, "Asia/Tokyo")
	w := quota.Month.Anchored(31).InTenantZone()
	if !w.IsTenantZone() {
		t.Fatal("the window does not wait for its tenant's zone")
	}
	if got, want := w.Resolve(tokyo), quota.Month.Anchored(31).In(tokyo); got != want {
		t.Errorf("resolved it is %v, want %v", got, want)
	}
	if got, want := w.Resolve(nil), quota.Month.Anchored(31); got != want {
		t.Errorf("of a tenant without a zone it is %v, want %v", got, want)
	}
	fixed := quota.Day.In(tokyo)
	if got := fixed.Resolve(zone(t, "Africa/Cairo")); got != fixed {
		t.Errorf("a window with a zone of its own becomes %v", got)
	}
	if got := fixed.InTenantZone().Resolve(nil); got != quota.Day {
		t.Errorf("the zone from before stayed: %v", got)
	}
}

func TestPerIsTheNominalLength(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for w, want := range map[quota.Window]time.Duration{
		quota.Rolling(90 * time.Second): 90 * time.Second,
		quota.Minute:                    time.Minute,
		quota.Hour:                      time.Hour,
		quota.Day:                       day,
		quota.Week:                      7 * day,
		quota.Month:                     30*day + 10*time.Hour + 29*time.Minute + 6*time.Second,
		{}:                              0,
	} {
		if got := w.Per(); got != want {
			t.Errorf("%v: %v, want %v", w, got, want)
		}
	}
}

func TestWindowsAreFoundWithoutAllocating(t *testing.T) {
	at := time.Now()
	for _, w := range append(calendarWindows(zone(t, "Africa/Cairo")), calendarWindows(time.UTC)...) {
		if n := testing.AllocsPerRun(20, func() { w.Spans(at) }); n != 0 {
			t.Errorf("%v: %v allocations", w, n)
		}
	}
}
