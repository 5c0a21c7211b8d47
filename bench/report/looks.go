package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/internal/burst"
)

// look says what one should look for in the pictures of a shape.
func look(s burst.Shape) string { return looks[s.Name] }

var looks = map[string]string{
	"review": "Demand is well above the quota, so somebody has to wait, and some must give up. The use of the quota should stand at the dashed line, " +
		"the line of waiting calls at what the longest allowed wait makes of it, and there should be no 429s. Without a limit the excess turns into refusals.",
	"review-ten": "Ten fan-outs start at one instant, and the quota has room for less than half of their calls in a minute. Look at the first bars of 429s, and at when the last call is done.",
	"herd":       "A fixed window starts anew between the first two crowds, so that it serves twice as much of them at once as a sliding window or a bucket. Compare the three.",
	"hog": "Places at the provider are what is short. In order of arrival, ten users wait behind the branches of the hog; in fair order they pass them. " +
		"The figures to read are the waits of interactive calls and the Jain index.",
	"heavy-tail": "The largest calls take as much of the quota as many small ones. A limiter that counts calls cannot see them coming; one that counts tokens should fill the quota up to " +
		"the line and not beyond.",
	"estimates-under": "Calls use more than three times what the program believes. Whoever takes its word sends far too much, until it has learned better.",
	"estimates-over":  "Calls use a third of what the program believes. Whoever takes its word leaves two thirds of the quota unused, until it has learned better.",
	"below-published": "Nobody can know the true quota, so 429s cannot be avoided, only be few. Look whether a policy learns from them or runs into the same wall again and again.",
	"backfill":        "The whole backfill stands in line from the start. Interactive calls that come later should not have to wait for all of it: compare the waits of the two classes.",
	"slow-consumers":  "Consumers keep the first item of their stream for long. Many calls are then in flight that do not use the quota; it should be used all the same.",
	"quantised":       "The real limit is on every second. A limiter that knows of the minute only sends far more than that in the first second, and is refused.",
	"nested":          "The work comes in waves, each as wide as a level of the tree. A parent must not keep its slot while its children run, or the levels would wait for one another.",
	"brown-out":       "For a minute nobody is served. Look how many attempts are wasted in it, and how soon and how gently each policy comes back.",
	"jitter": "What is sent in one minute may be counted in the next. Whoever books a call when it is sent overruns a window that counts it when it arrives; " +
		"this is what the guard of Headgate's window is for.",
}

// setting says what a shape meets: its quota, what a program is set to, and what
// is odd about the provider.
func setting(s burst.Shape) string {
	var quota []string
	if s.RequestsPerMinute > 0 {
		quota = append(quota, grouped(s.RequestsPerMinute)+" requests")
	}
	if s.TokensPerMinute > 0 {
		quota = append(quota, grouped(s.TokensPerMinute)+" tokens")
	}
	say := "No quota."
	if len(quota) > 0 {
		say = "Quota: " + strings.Join(quota, " and ") + " a minute."
	}
	add := func(format string, args ...any) { say += " " + fmt.Sprintf(format, args...) }
	if s.Slots > 0 {
		add("%d slots.", s.Slots)
	}
	if s.MaxWait > 0 {
		add("Calls wait for at most %v.", short(s.MaxWait))
	}
	if s.Stream > 0 {
		add("Calls keep coming for %s.", short(s.Stream))
	}
	if s.Concurrency > 0 {
		add("The provider serves at most %d at once.", s.Concurrency)
	}
	if s.Granted > 0 {
		add("The provider lets only %s of the published quota through.", percent(s.Granted))
	}
	if s.Quantum > 0 {
		add("It checks the quota over %s, too.", short(s.Quantum))
	}
	switch {
	case s.Jitter > 0:
		add("It sees a call %s to %s after it was sent.", short(s.Delay), short(s.Delay+s.Jitter))
	case s.Delay > 0:
		add("It sees a call %s after it was sent.", short(s.Delay))
	}
	if s.OutageTo > 0 {
		add("It answers 503 from %s to %s.", short(s.OutageFrom), short(s.OutageTo))
	}
	return say
}

// short writes a duration without the parts that are zero: "1m", not "1m0s".
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
