package fleet

import (
	"math"
	"testing"
	"time"
)

// made are the calls of a home within a time, in seconds after the start.
func made(h *home, c *Config, length time.Duration) (at []float64, jobs []job) {
	for {
		next := h.next()
		if next >= int64(length) {
			return at, jobs
		}
		at, jobs = append(at, float64(next)/1e9), append(jobs, h.job(c))
	}
}

func TestHomesMakeCallsAtTheMeanRateOfTheirShape(t *testing.T) {
	t.Parallel()
	const length = 3 * time.Hour
	for _, shape := range Shapes() {
		c, err := (Config{Replicas: 10, Shape: shape, Rate: 2, Seed: 1}).WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		var all, tokens float64
		for i, h := range c.homes() {
			at, jobs := made(h, &c, length)
			rate := float64(len(at)) / length.Seconds()
			all += rate
			want := 2.
			if shape == Skewed { // half of 20 a second comes to one of 10
				if want = 10. / 9; i == 0 {
					want = 10
				}
			}
			// 90 bursts of random length are within 3 sigma of their mean, which is half of it.
			if math.Abs(rate-want) > 0.5*want {
				t.Errorf("%v: home %d makes %.2f calls a second, want %.2f", shape, i, rate, want)
			}
			for _, j := range jobs {
				tokens += float64(j.tokens) / length.Seconds()
				if j.user/10 != int32(i) || j.estimate != j.tokens {
					t.Fatalf("%v: home %d has a call %+v", shape, i, j)
				}
			}
		}
		if math.Abs(all-20) > 2 {
			t.Errorf("%v: all homes make %.2f calls a second, want 20", shape, all)
		}
		if mean := tokens / all; math.Abs(mean-1500) > 20 {
			t.Errorf("%v: a call has %.0f tokens in the mean, want 1500", shape, mean)
		}
	}
}

func TestABurstyHomeIsOnForAQuarterOfTheTime(t *testing.T) {
	t.Parallel()
	c, err := (Config{Replicas: 1, Shape: Bursty, Rate: 5, Seed: 3}).WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	// While it is on there is a call every 50 ms in the mean: a pause of 2 s is none by
	// chance, and the 90 s of an off time are seldom shorter.
	at, _ := made(c.homes()[0], &c, 20*time.Hour)
	on, bursts := 0.0, 1
	for i := 1; i < len(at); i++ {
		if pause := at[i] - at[i-1]; pause > 2 {
			bursts++
		} else {
			on += pause
		}
	}
	if part := on / (20 * 3600); part < 0.2 || part > 0.3 {
		t.Errorf("it is on for %.3f of the time", part)
	}
	if mean := on / float64(bursts); mean < 25 || mean > 36 {
		t.Errorf("a burst lasts %.1f s in the mean, want about 30", mean)
	}
}

func TestWrongEstimatesAreRightInTheMiddle(t *testing.T) {
	t.Parallel()
	c, err := (Config{Replicas: 1, Shape: Steady, Error: 0.4, Seed: 3}).WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	_, jobs := made(c.homes()[0], &c, time.Hour)
	var sum, squares float64
	for _, j := range jobs {
		x := math.Log(float64(j.estimate) / float64(j.tokens))
		sum += x
		squares += x * x
	}
	n := float64(len(jobs))
	if mean, sigma := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.02 || math.Abs(sigma-0.4) > 0.02 {
		t.Errorf("the logarithm of the error has mean %.3f and sigma %.3f, want 0 and 0.4", mean, sigma)
	}
}

func TestTheQuotaIsWhatTheLoadSays(t *testing.T) {
	t.Parallel()
	c, err := (Config{Replicas: 4, Rate: 2, Load: 0.5, Tokens: 100, First: Spread{Median: time.Second}, Rest: Spread{Median: 2 * time.Second},
		ToProvider: Spread{Median: 500 * time.Millisecond}}).WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	// 8 calls a second of 100 tokens are half of 96000 tokens a minute, and 16 calls a
	// second of 4 s each are 64 in flight.
	if c.TokensPerMinute() != 96000 || c.RequestsPerMinute() != 1200 || c.Slots != 128 {
		t.Errorf("%d tokens, %d requests, %d slots", c.TokensPerMinute(), c.RequestsPerMinute(), c.Slots)
	}
}
