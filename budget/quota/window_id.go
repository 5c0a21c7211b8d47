package quota

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const tenantZone = "tenant"

// ID names the window: its kind, a month's anchor day, and the zone unless that is
// UTC.
//
//	minute   day@Asia/Tokyo   month:31@America/Havana   week@tenant   rolling:1m
//
// It is stable: counters that are kept for years carry it. [ParseWindow] reads it.
// The ID of a window that is not valid is not either.
func (w Window) ID() string { return w.id }

// String is the ID.
func (w Window) String() string { return w.id }

// MarshalText writes the ID of a valid window.
func (w Window) MarshalText() ([]byte, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	return []byte(w.id), nil
}

// UnmarshalText reads an ID as [ParseWindow] does.
func (w *Window) UnmarshalText(text []byte) error {
	parsed, err := ParseWindow(string(text))
	if err != nil {
		return err
	}
	*w = parsed
	return nil
}

// named returns w with its id.
func (w Window) named() Window {
	switch w.kind {
	case noWindow:
		w.id = ""
		return w
	case rollingWindow:
		w.id = kindNames[w.kind] + ":" + shortDuration(w.per)
	default:
		w.id = kindNames[w.kind]
		if w.day != 0 && (w.kind != monthWindow || w.day != 1) {
			w.id += ":" + strconv.Itoa(w.day)
		}
	}
	switch {
	case w.tenant:
		w.id += "@" + tenantZone
	case w.zone == processZone && w.zone != nil:
		w.id += "@Local"
	case w.zone != nil:
		w.id += "@" + w.zone.String()
	}
	return w
}

// shortDuration is d without the zeros behind its last unit: 1m, not 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}

// ParseWindow reads a window as [Window.ID] writes it: "minute", "hour", "day",
// "week" or "month", for a month ":" and its anchor day, and "@" and a zone of the
// time zone database, or "@tenant"; or "rolling:" and a duration as
// [time.ParseDuration] reads it. "@UTC", "month:1" and "rolling:60s" are read, too.
// The error names what is wrong.
func ParseWindow(s string) (Window, error) {
	w, err := parseWindow(s)
	if err != nil {
		return Window{}, fmt.Errorf("quota: window %.100q: %w", s, err)
	}
	return w, nil
}

func parseWindow(s string) (Window, error) {
	calendar, zone, zoned := strings.Cut(s, "@")
	kind, detail, detailed := strings.Cut(calendar, ":")
	var w Window
	switch kind {
	case "rolling":
		if zoned {
			return w, fmt.Errorf("a rolling window has no zone, but %.40q is given", zone)
		}
		if !detailed {
			return w, errors.New(`it has no period, as in "rolling:1m"`)
		}
		per, err := time.ParseDuration(detail)
		if err != nil {
			return w, fmt.Errorf("period %.40q is not a duration", detail)
		}
		w = Rolling(per)
		return w, w.validate()
	case "minute":
		w = Minute
	case "hour":
		w = Hour
	case "day":
		w = Day
	case "week":
		w = Week
	case "month":
		w = Month
	default:
		return w, errors.New("it is none of minute, hour, day, week, month and rolling")
	}
	if detailed {
		day, err := strconv.Atoi(detail)
		if err != nil || strconv.Itoa(day) != detail {
			return w, fmt.Errorf("anchor day %.40q is not a number", detail)
		}
		w = w.Anchored(day)
		if err := w.validate(); err != nil {
			return w, err
		}
	}
	switch {
	case !zoned:
		return w, nil
	case zone == tenantZone:
		return w.InTenantZone(), nil
	case zone == "UTC":
		return w, nil
	}
	known, err := zoneNamed(zone)
	if err != nil {
		return w, err
	}
	return w.In(known), nil
}
