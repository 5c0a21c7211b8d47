package engine

import (
	"testing"
	"time"
)

func TestAMeterTellsWhatFitsAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, model := range []WindowModel{Sliding, Fixed, Bucket} {
		m, err := NewMeter(Limit{Amount: 100, Length: 10 * s, Model: model, Dimension: InputTokens})
		if err != nil {
			t.Fatal(err)
		}
		m.Count(4*s, 90)
		if left := m.Left(4 * s); left != 10 {
			t.Errorf("%v: %d left of 100, want 10", model, left)
		}
		// 20 fit when the 90 leave the window, when the next one begins, or when 10 have
		// come back at 10 a second.
		if wait, ok := m.Fits(4*s, 20); !ok || wait != map[WindowModel]time.Duration{Sliding: 10 * s, Fixed: 6 * s, Bucket: 1 * s}[model] {
			t.Errorf("%v: 20 fit after %v (%v)", model, wait, ok)
		}
		if _, ok := m.Fits(4*s, 101); ok {
			t.Errorf("%v: 101 fit into 100", model)
		}
		m.Count(4*s, 30)
		if left := m.Left(4 * s); left != -20 {
			t.Errorf("%v: %d left after 120 of 100, want -20", model, left)
		}
	}
}

func TestAMeterWithoutALimitHoldsEverything(t *testing.T) {
	t.Parallel()
	m, err := NewMeter(Limit{Length: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	m.Count(0, 1<<40)
	if wait, ok := m.Fits(0, 1<<40); !ok || wait != 0 || m.Left(0) != 0 {
		t.Errorf("%v, %v, %d left", wait, ok, m.Left(0))
	}
}

func TestAMeterNeedsALimitThatIsOne(t *testing.T) {
	t.Parallel()
	if _, err := NewMeter(Limit{Amount: -1, Length: time.Second}); err == nil {
		t.Error("a limit of -1 is taken")
	}
}
