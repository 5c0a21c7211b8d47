package quota_test

import (
	"strings"
	"testing"

	"github.com/headgate-go/headgate/budget/quota"
)

func TestPoliciesReadWhatTheyWrite(t *testing.T) {
	t.Parallel()
	type text interface {
		MarshalText() ([]byte, error)
		String() string
	}
	roundTrip := func(value text, back interface{ UnmarshalText([]byte) error }, same func() bool, want string) {
		t.Helper()
		b, err := value.MarshalText()
		if err != nil || string(b) != want || value.String() != want {
			t.Errorf("%v is written as %q (%v) and shown as %q, want %q", value, b, err, value.String(), want)
		}
		if err := back.UnmarshalText(b); err != nil || !same() {
			t.Errorf("%q is read as %v, %v", b, back, err)
		}
		if err := back.UnmarshalText([]byte(want + "x")); err == nil || !strings.Contains(err.Error(), want+"x") {
			t.Errorf("%q is read with error %v, want one that names it", want+"x", err)
		}
	}
	for want, m := range map[string]quota.Mode{"unset": quota.ModeUnset, "off": quota.Off, "observe": quota.Observe, "enforce": quota.Enforce} {
		back := quota.Mode(99)
		roundTrip(m, &back, func() bool { return back == m }, want)
	}
	for want, m := range map[string]quota.Missing{"deny": quota.Deny, "skip": quota.Skip} {
		back := quota.Missing(99)
		roundTrip(m, &back, func() bool { return back == m }, want)
	}
	for want, p := range map[string]quota.FailurePolicy{"auto": quota.Auto, "open": quota.Open, "closed": quota.Closed} {
		back := quota.FailurePolicy(99)
		roundTrip(p, &back, func() bool { return back == p }, want)
	}
	for want, p := range map[string]quota.HoldPolicy{"p95": quota.P95, "mean": quota.Mean, "worst": quota.Worst} {
		back := quota.HoldPolicy(99)
		roundTrip(p, &back, func() bool { return back == p }, want)
	}
	if _, err := quota.Mode(99).MarshalText(); err == nil {
		t.Error("a mode that is none is written without an error")
	}
}
