package quota

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Window is the time over which a limit counts. It is rolling, or a calendar's
// minute, hour, day, week or month in a time zone.
//
// Calendar windows tile time: they are half-open, every instant lies in exactly
// one, and the next begins where the last ends. A day begins with the first
// instant at which the zone's calendar shows its date, or a later one. So where
// the clock is put forward over midnight, the day begins with the first time that
// exists; where it is put back over midnight, the day begins with the first of the
// two, and what the clock repeats stays in the day that has begun; and a date that
// a zone has left out has no window. Weeks begin on Monday (ISO 8601), months on
// their first day or on an anchor day.
//
// Minutes and hours begin where the zone's clock shows a full one, which in some
// zones is not a full one of UTC. Where the clock is changed a new one begins, so
// none is longer than its name says, and hours that the clock shows twice are two.
//
// Windows are comparable with ==; windows that are the same compare equal if they
// came from this package's functions. The zero Window is none, and not valid.
// Methods of a window that is not valid do not panic, and mean nothing. A Window
// is safe for concurrent use.
//
// Zones come from the time zone database of the system or of package
// time/tzdata. Import that in your program if it may run where there is none, such
// as in a container from scratch. The process's own zone (TZ, [time.Local]) has no
// influence and cannot be used: two instances could differ in it.
type Window struct {
	kind   windowKind
	tenant bool           // in the zone of the tenant, which is not known yet
	day    int            // the anchor of months
	per    time.Duration  // of rolling windows
	zone   *time.Location // nil is UTC; else as zoneNamed gives it
	id     string         // made of the others
}

type windowKind uint8

const (
	noWindow windowKind = iota
	rollingWindow
	minuteWindow
	hourWindow
	dayWindow
	weekWindow
	monthWindow
)

var kindNames = [...]string{
	rollingWindow: "rolling",
	minuteWindow:  "minute",
	hourWindow:    "hour",
	dayWindow:     "day",
	weekWindow:    "week",
	monthWindow:   "month",
}

// The calendar windows, in UTC. Use [Window.In] for another zone.
var (
	Minute = Window{kind: minuteWindow}.named()
	Hour   = Window{kind: hourWindow}.named()
	Day    = Window{kind: dayWindow}.named()
	Week   = Window{kind: weekWindow}.named()
	Month  = Window{kind: monthWindow, day: 1}.named()
)

// Rolling is a window without edges: what was used comes back little by little,
// so that all of it is back after per. It has no zone.
func Rolling(per time.Duration) Window {
	return Window{kind: rollingWindow, per: per}.named()
}

// In gives the same calendar window in a zone, which is taken by its name; nil is
// UTC. A rolling window is returned as it is. Validate reports a zone that is not
// in the time zone database, such as one made by [time.FixedZone], and
// [time.Local].
func (w Window) In(zone *time.Location) Window {
	if w.kind == rollingWindow || w.kind == noWindow {
		return w
	}
	w.tenant, w.zone = false, nil
	if zone == processZone {
		w.zone = zone
	} else if name := zone.String(); name != "UTC" {
		w.zone = zone
		if known, err := zoneNamed(name); err == nil {
			w.zone = known
		}
	}
	return w.named()
}

// InTenantZone gives the same calendar window in the zone of the tenant, which
// [Window.Resolve] puts in when it is known. Until then it is as in UTC. A rolling
// window is returned as it is.
func (w Window) InTenantZone() Window {
	if w.kind == rollingWindow || w.kind == noWindow {
		return w
	}
	w.tenant, w.zone = true, nil
	return w.named()
}

// Resolve puts in the tenant's zone, nil for UTC, if the window waits for it.
// Other windows are returned as they are.
func (w Window) Resolve(zone *time.Location) Window {
	if !w.tenant {
		return w
	}
	return w.In(zone)
}

// IsTenantZone reports whether the window waits for its tenant's zone.
func (w Window) IsTenantZone() bool { return w.tenant }

// Anchored gives a month that begins on a day of the month, 1 to 31, such as the
// day on which a customer is billed. Where a month is too short for it, it begins
// on the last day. Validate reports another day, and windows that are no months.
func (w Window) Anchored(day int) Window {
	if w.kind == noWindow {
		return w
	}
	w.day = day
	return w.named()
}

// IsRolling reports whether the window is rolling.
func (w Window) IsRolling() bool { return w.kind == rollingWindow }

// Per is the period of a rolling window, and the nominal length of others: of a
// day 24 hours, of a month 30 days, 10 hours, 29 minutes and 6 seconds, which is a
// 4,800th of the 400 years after which the calendar repeats. What a certain
// window's length is, Span says.
func (w Window) Per() time.Duration {
	const day = 24 * time.Hour
	switch w.kind {
	case rollingWindow:
		return w.per
	case minuteWindow:
		return time.Minute
	case hourWindow:
		return time.Hour
	case dayWindow:
		return day
	case weekWindow:
		return 7 * day
	case monthWindow:
		return 146_097 * (day / 4_800) // days in 400 years, months in 400 years
	}
	return 0
}

// Location is the zone; UTC where the window has none.
func (w Window) Location() *time.Location {
	if w.zone == nil {
		return time.UTC
	}
	return w.zone
}

// Validate returns an error that names what is wrong with the window, if anything
// is.
func (w Window) Validate() error {
	if err := w.validate(); err != nil {
		return fmt.Errorf("quota: window: %w", err)
	}
	return nil
}

func (w Window) validate() error {
	switch {
	case w.kind == noWindow:
		return errors.New("it is not set")
	case w.kind == rollingWindow && w.per <= 0:
		return fmt.Errorf("rolling period %v is not above 0", w.per)
	case w.kind == monthWindow && (w.day < 1 || w.day > 31):
		return fmt.Errorf("anchor day %d is not one of 1 to 31", w.day)
	case w.kind != monthWindow && w.day != 0:
		return fmt.Errorf("anchor day %d is given, but only months have one, not %q", w.day, kindNames[w.kind])
	case w.zone == nil:
		return nil
	case w.zone == processZone:
		return errProcessZone
	}
	known, err := zoneNamed(w.zone.String())
	if err != nil {
		return err
	}
	if known != w.zone { // the window was made when the database could not be read
		return fmt.Errorf("zone %q was not in the time zone database", w.zone)
	}
	return nil
}

// processZone is what time.Local is until a program changes it. Its name may be
// that of any zone, depending on the environment.
var processZone = time.Local

var errProcessZone = errors.New("zone Local is the process's own, in which instances may differ")

// zones are the zones in use, by name: one pointer a name, so that windows
// compare. Only names that the time zone database has get in.
var zones sync.Map // string → *time.Location

// zoneNamed finds a zone in the time zone database. Names of files that stand
// beside the zones, like the host's own "localtime" and the "right" zones with
// leap seconds, begin with a lower-case letter, and no zone does.
func zoneNamed(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	const longest = 64 // the longest name there is has 32
	switch {
	case len(name) > longest:
		return nil, fmt.Errorf("zone %.40q… is a name of %d bytes, above %d", name, len(name), longest)
	case name == "Local":
		return nil, errProcessZone
	case name == "" || name[0] < 'A' || name[0] > 'Z':
		return nil, fmt.Errorf("zone %q is not in the time zone database", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q is not in the time zone database: %w", name, err)
	}
	known, _ := zones.LoadOrStore(name, zone)
	return known.(*time.Location), nil
}
