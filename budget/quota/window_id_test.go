package quota_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestWindowIDNamesKindAnchorAndZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w    quota.Window
		want string
	}{
		{quota.Minute, "minute"},
		{quota.Hour, "hour"},
		{quota.Day, "day"},
		{quota.Week, "week"},
		{quota.Month, "month"},
		{quota.Month.Anchored(1), "month"},
		{quota.Month.Anchored(31), "month:31"},
		{quota.Day.In(time.UTC), "day"},
		{quota.Day.In(nil), "day"},
		{quota.Day.In(zone(t, "Asia/Tokyo")), "day@Asia/Tokyo"},
		{quota.Day.In(zone(t, "Asia/Tokyo")).In(time.UTC), "day"},
		{quota.Month.In(zone(t, "America/Havana")).Anchored(31), "month:31@America/Havana"},
		{quota.Month.Anchored(31).In(zone(t, "America/Havana")), "month:31@America/Havana"},
		{quota.Week.InTenantZone(), "week@tenant"},
		{quota.Rolling(time.Minute), "rolling:1m"},
		{quota.Rolling(24 * time.Hour), "rolling:24h"},
		{quota.Rolling(90 * time.Minute), "rolling:1h30m"},
		{quota.Rolling(10 * time.Minute), "rolling:10m"},
		{quota.Rolling(20 * time.Hour), "rolling:20h"},
		{quota.Rolling(1500 * time.Millisecond), "rolling:1.5s"},
	} {
		if got := c.w.ID(); got != c.want {
			t.Errorf("ID is %q, want %q", got, c.want)
		}
		parsed, err := quota.ParseWindow(c.want)
		if err != nil || parsed != c.w {
			t.Errorf("%q is read as %#v, %v", c.want, parsed, err)
		}
	}
}

func TestParseWindowReadsWhatMeansTheSame(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]quota.Window{
		"day@UTC":       quota.Day,
		"month:1":       quota.Month,
		"rolling:60s":   quota.Rolling(time.Minute),
		"rolling:1m0s":  quota.Rolling(time.Minute),
		"month:1@UTC":   quota.Month,
		"rolling:1440m": quota.Rolling(24 * time.Hour),
	} {
		if got, err := quota.ParseWindow(s); err != nil || got != want {
			t.Errorf("%q is read as %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestParseWindowSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                                 `window "": it is none of minute, hour,`,
		"daily":                            `window "daily": it is none of minute, hour,`,
		"Day":                              `window "Day": it is none of`,
		" day":                             `window " day": it is none of`,
		"rolling":                          `it has no period`,
		"rolling:":                         `period "" is not a duration`,
		"rolling:0s":                       `rolling period 0s is not above 0`,
		"rolling:-1m":                      `rolling period -1m0s is not above 0`,
		"rolling:60":                       `period "60" is not a duration`,
		"rolling:1m@UTC":                   `a rolling window has no zone, but "UTC" is given`,
		"day:2":                            `anchor day 2 is given, but only months have one, not "day"`,
		"month:0":                          `anchor day 0 is not one of 1 to 31`,
		"month:32":                         `anchor day 32 is not one of 1 to 31`,
		"month:-1":                         `anchor day -1 is not one of 1 to 31`,
		"month:031":                        `anchor day "031" is not a number`,
		"month:":                           `anchor day "" is not a number`,
		"month:99999999999999999999":       `anchor day "99999999999999999999" is not a number`,
		"day@":                             `zone "" is not in the time zone database`,
		"day@Mars/Olympus":                 `zone "Mars/Olympus" is not in the time zone database`,
		"day@America":                      `zone "America" is not in the time zone database`,
		"day@A/../../../etc/passwd":        `zone "A/../../../etc/passwd" is not in the time zone database`,
		"day@/etc/localtime":               `zone "/etc/localtime" is not in the time zone database`,
		"day@Local":                        `zone Local is the process's own`,
		"day@localtime":                    `zone "localtime" is not in`,
		"day@right/UTC":                    `zone "right/UTC" is not in`,
		"day@Asia/Tokyo@UTC":               `zone "Asia/Tokyo@UTC" is not in`,
		"day@Tenant":                       `zone "Tenant" is not in`,
		"day@" + strings.Repeat("A", 1000): `a name of 1000 bytes, above 64`,
	} {
		w, err := quota.ParseWindow(s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", s, err, want)
		}
		if w != (quota.Window{}) {
			t.Errorf("%.60q: a window %v comes with the error", s, w)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.60q: the error has %d bytes", s, len(err.Error()))
		}
	}
}

func TestWindowValidateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w    quota.Window
		want string
	}{
		{quota.Window{}, "it is not set"},
		{quota.Window{}.In(time.UTC).Anchored(3).InTenantZone(), "it is not set"},
		{quota.Rolling(0), "rolling period 0s is not above 0"},
		{quota.Rolling(-time.Second), "rolling period -1s is not above 0"},
		{quota.Month.Anchored(0), "anchor day 0"},
		{quota.Month.Anchored(32), "anchor day 32"},
		{quota.Day.Anchored(15), `anchor day 15 is given, but only months have one, not "day"`},
		{quota.Rolling(time.Hour).Anchored(15), `not "rolling"`},
		{quota.Day.In(time.Local), "zone Local is the process's own"},
		{quota.Day.InTenantZone().Resolve(time.Local), "zone Local is the process's own"},
		{quota.Day.In(time.FixedZone("Mine", 3600)), `zone "Mine" is not in the time zone database`},
		{quota.Day.In(time.FixedZone("", 3600)), `zone "" is not in the time zone database`},
	} {
		err := c.w.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.w, err, c.want)
		}
		c.w.Spans(time.Now()) // ends, and does not panic
		if _, err := c.w.MarshalText(); err == nil {
			t.Errorf("%v is written as text", c.w)
		}
	}
	for _, name := range unusualZones {
		for _, w := range calendarWindows(zone(t, name)) {
			if err := w.Validate(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Two loads of a zone are two pointers; the windows are the same all the same.
func TestWindowsOfTheSameZoneCompareEqual(t *testing.T) {
	t.Parallel()
	a, b := zone(t, "Europe/Paris"), zone(t, "Europe/Paris")
	if a == b {
		t.Fatal("the zone was loaded once only, which is not what this test is about")
	}
	if quota.Day.In(a) != quota.Day.In(b) {
		t.Error("days of Paris differ")
	}
	if quota.Day.In(a) == quota.Hour.In(a) || quota.Day.In(a) == quota.Day || quota.Month == quota.Month.Anchored(2) {
		t.Error("different windows are equal")
	}
	if got := quota.Day.In(a).Location().String(); got != "Europe/Paris" {
		t.Errorf("the location is %s", got)
	}
	if got := quota.Day.Location(); got != time.UTC {
		t.Errorf("the location is %v, want UTC", got)
	}
}

func TestWindowIsTextInJSON(t *testing.T) {
	t.Parallel()
	type config struct{ Window quota.Window }
	in := config{quota.Month.Anchored(31).In(zone(t, "Asia/Tokyo"))}
	data, err := json.Marshal(in)
	if want := `{"Window":"month:31@Asia/Tokyo"}`; err != nil || string(data) != want {
		t.Fatalf("%s, %v; want %s", data, err, want)
	}
	var out config
	if err := json.Unmarshal(data, &out); err != nil || out != in {
		t.Errorf("%v, %v; want %v", out, err, in)
	}
	before := out
	if err := json.Unmarshal([]byte(`{"Window":"fortnight"}`), &out); err == nil || out != before {
		t.Errorf("a fortnight is read as %v, %v", out, err)
	}
}

// In the child, time.Local has the name of an ordinary zone.
func TestTheProcessesOwnZoneHasNoInfluence(t *testing.T) {
	const marker = "HEADGATE_TEST_ZONE"
	if os.Getenv(marker) != "" {
		if err := quota.Day.In(time.Local).Validate(); err == nil {
			t.Errorf("the process's own zone %s is accepted", time.Local)
		}
		at := instant(t, "2026-07-31T14:59:59Z")
		if got, want := quota.Day.Span(at).Start, instant(t, "2026-07-31T00:00:00Z"); !got.Equal(want) {
			t.Errorf("the day began at %v, want %v", got, want)
		}
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	for _, tz := range []string{"Asia/Tokyo", ""} {
		cmd := exec.Command(self, "-test.run=^TestTheProcessesOwnZoneHasNoInfluence$")
		cmd.Env = append(os.Environ(), marker+"=1", "TZ="+tz)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("TZ=%s: %v\n%s", tz, err, out)
		}
	}
}

func FuzzParseWindow(f *testing.F) {
	for _, s := range []string{
		"day", "month:31@America/Havana", "rolling:1h2m3s", "week@tenant", "hour@Asia/Kathmandu",
		"day@Local", "rolling:9223372036854775807ns", "month:+1", "rolling:-0s", "day@../x", "month:1:2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := quota.ParseWindow(s)
		if err != nil {
			return
		}
		if err := w.Validate(); err != nil {
			t.Fatalf("%q is read as %v, which is not valid: %v", s, w, err)
		}
		again, err := quota.ParseWindow(w.ID())
		if err != nil || again != w {
			t.Fatalf("%q has the ID %q, which is read as %v, %v", s, w.ID(), again, err)
		}
	})
}
