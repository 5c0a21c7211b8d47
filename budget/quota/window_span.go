package quota

import "time"

// Span is the window in which at lies, in UTC: a calendar window, or all time for
// a rolling one. Its end lies strictly after at, for years 1 to 9999; other years
// get the first or the last window of these.
func (w Window) Span(at time.Time) Span { return w.Spans(at)[1] }

// Spans are the windows before, around and after at, as [Entry].Spans has them.
// They follow each other without a gap.
func (w Window) Spans(at time.Time) [3]Span {
	at = withinYears(at)
	switch w.kind {
	case minuteWindow, hourWindow, dayWindow, weekWindow:
		if w.zone == nil {
			return w.evenSpans(at)
		}
	}
	switch w.kind {
	case minuteWindow, hourWindow:
		here := w.clockSpan(at)
		return [3]Span{w.clockSpan(here.Start.Add(-1)), here, w.clockSpan(here.End)}
	case dayWindow, weekWindow, monthWindow:
		return w.dateSpans(at)
	}
	return [3]Span{}
}

var firstYear, afterYears = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

func withinYears(at time.Time) time.Time {
	switch {
	case at.Before(firstYear):
		return firstYear
	case !at.Before(afterYears):
		return afterYears.Add(-1)
	}
	return at
}

// evenSpans are windows in UTC that are all of the same length.
func (w Window) evenSpans(at time.Time) [3]Span {
	length, shift := int64(w.Per()/time.Second), int64(0)
	if w.kind == weekWindow {
		shift = thursday * secondsPerDay
	}
	start := floor(at.Unix()+shift, length)*length - shift
	edges := [4]time.Time{utc(start - length), utc(start), utc(start + length), utc(start + 2*length)}
	return [3]Span{{edges[0], edges[1]}, {edges[1], edges[2]}, {edges[2], edges[3]}}
}

// clockSpan is the minute or hour around at, in a zone. Between two changes of the clock,
// minutes and hours are counted from the clock's own full ones; a change ends one
// and begins the next.
func (w Window) clockSpan(at time.Time) Span {
	length := int64(w.Per() / time.Second)
	offset := w.offset(at)
	start := floor(at.Unix()+offset, length)*length - offset
	span := Span{Start: utc(start), End: utc(start + length)}
	// A zone's bounds are also where only its name or its being summer time
	// changes. Those do not matter.
	for bound, _ := at.In(w.zone).ZoneBounds(); !bound.IsZero() && bound.After(span.Start); {
		before := bound.Add(-1)
		if w.offset(before) != offset {
			span.Start = bound.UTC()
			break
		}
		bound, _ = before.ZoneBounds()
	}
	for bound := stretchEnd(at.In(w.zone)); !bound.IsZero() && bound.Before(span.End); bound = stretchEnd(bound) {
		if w.offset(bound) != offset {
			span.End = bound.UTC()
			break
		}
	}
	return span
}

// dateSpans are the days, weeks or months around at, which have consecutive
// numbers. A window begins when the calendar first shows its first date or a
// later one. Windows that begin together with the next one are empty, and left
// out: their dates were skipped.
func (w Window) dateSpans(at time.Time) [3]Span {
	n := w.number(floor(at.Unix()+w.offset(at), secondsPerDay))
	start, end := w.begin(n), w.begin(n+1)
	for !end.After(at) { // a later date was shown before, and the clock put back
		n++
		start, end = end, w.begin(n+1)
	}
	before := start
	for k := n - 1; !before.Before(start); k-- {
		before = w.begin(k)
	}
	after := end
	for k := n + 2; !after.After(end); k++ {
		after = w.begin(k)
	}
	return [3]Span{{before, start}, {start, end}, {end, after}}
}

const secondsPerDay = 24 * 60 * 60

// number is the number of the window whose dates include a day. Days are numbered
// from 1970-01-01, weeks from the one of 1970-01-01, months from January of the
// year 0. An anchored month has the number of the month in which it begins.
func (w Window) number(day int64) int64 {
	switch w.kind {
	case weekWindow:
		return floor(day+thursday, 7)
	case monthWindow:
		year, month, date := utc(day * secondsPerDay).Date()
		n := int64(year)*12 + int64(month) - 1
		if date < w.anchor(n) {
			n--
		}
		return n
	}
	return day
}

const thursday = 3 // 1970-01-01 was one, three days after Monday

// firstDay is the first day of window n.
func (w Window) firstDay(n int64) int64 {
	switch w.kind {
	case weekWindow:
		return n*7 - thursday
	case monthWindow:
		return dayOf(n, w.anchor(n))
	}
	return n
}

// anchor is the day of the month on which month n begins.
func (w Window) anchor(n int64) int {
	if 1 <= w.day && w.day <= 28 {
		return w.day
	}
	last := int(dayOf(n+1, 1) - dayOf(n, 1))
	return max(1, min(w.day, last))
}

// dayOf is the number of a day of month n.
func dayOf(n int64, date int) int64 {
	year := floor(n, 12)
	month := time.Month(n-year*12) + time.January
	return floor(time.Date(int(year), month, date, 0, 0, 0, 0, time.UTC).Unix(), secondsPerDay)
}

// begin is the first instant at which the calendar shows the first day of window n
// or a later one.
func (w Window) begin(n int64) time.Time {
	midnight := w.firstDay(n) * secondsPerDay // in the zone's own seconds
	if w.zone == nil {
		return utc(midnight)
	}
	// No zone is or was further than 16 hours from UTC, so at this instant, and
	// before, the clock shows less. From here on, look at each stretch between two
	// changes of the clock for the first instant that shows midnight or more.
	at := utc(midnight - 2*secondsPerDay).In(w.zone)
	for {
		shown := utc(midnight - w.offset(at)) // were the offset for ever as it is at
		if shown.Before(at) {
			shown = at
		}
		end := stretchEnd(at)
		if end.IsZero() || shown.Before(end) {
			return shown.UTC()
		}
		at = end
	}
}

// stretchEnd is an instant after at before which the zone's clock is not changed,
// or zero if it is never changed again.
//
// Past the last change that the database lists, package time also ends stretches
// with the year, and takes each year for 365 days long (as of Go 1.26): on 31
// December of a leap year, the end that it gives has passed. What is left then is
// the rest of that day.
func stretchEnd(at time.Time) time.Time {
	_, end := at.ZoneBounds()
	if end.IsZero() || end.After(at) {
		return end
	}
	return utc((floor(at.Unix(), secondsPerDay) + 1) * secondsPerDay).In(at.Location())
}

// offset is how far the zone's clock is ahead of UTC at an instant, in seconds.
func (w Window) offset(at time.Time) int64 {
	if w.zone == nil {
		return 0
	}
	_, offset := at.In(w.zone).Zone()
	return int64(offset)
}

func utc(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// floor divides and rounds down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
