package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
)

// sizing is the whole answer, as -json prints it.
type sizing struct {
	Question  question  `json:"question"`
	Traffic   traffic   `json:"traffic"`
	Reckoned  reckoned  `json:"reckoned"`
	Simulated simulated `json:"simulated"`
}

// writeJSON writes the answer as one object on one line.
func writeJSON(w io.Writer, s sizing) error { return json.NewEncoder(w).Encode(s) }

// writeText writes the answer for people: what was asked, a table, and what it
// means.
func writeText(w io.Writer, s sizing) error {
	var b strings.Builder
	s.writeQuestion(&b)
	s.writeTable(&b)
	s.writeMeaning(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (s sizing) writeQuestion(b *strings.Builder) {
	q := s.Question
	counted := "all of them counted"
	if q.Count == countInput {
		counted = fmt.Sprintf("of which the %s of input counted", grouped(q.counted()))
	}
	fmt.Fprintf(b, "%s user requests a minute, each of %s of %s tokens (%s) and %v.\n",
		short(q.usersPerMinute()), calls(q.Calls), grouped(q.Tokens), counted, q.Latency)
	if len(q.Tenants) > 1 {
		for _, t := range q.Tenants {
			fmt.Fprintf(b, "  %s: %s\n", t.Name, short(t.PerMinute))
		}
	}
	var quotas []string
	for _, l := range q.limits() {
		quotas = append(quotas, fmt.Sprintf("%s %s", grouped(l.quota), l.name))
	}
	fmt.Fprintf(b, "Quota: %s a minute, %s of it used, %s.\n\n",
		strings.Join(quotas, " and "), percent(q.Headroom), sharers(q.Replicas))
}

func calls(n int) string {
	if n == 1 {
		return "one call"
	}
	return fmt.Sprintf("%d calls", n)
}

func sharers(replicas int) string {
	if replicas == 1 {
		return "by one replica"
	}
	return fmt.Sprintf("in equal parts by %d replicas", replicas)
}

// writeTable writes what was reckoned beside what was measured.
func (s sizing) writeTable(b *strings.Builder) {
	q, a, m := s.Question, s.Reckoned, s.Simulated
	row := func(what, reckoned, measured string) {
		if m.Skipped != "" {
			measured = ""
		}
		fmt.Fprintf(b, "  %-46s %12s  %s\n", what, reckoned, measured)
	}
	head := func(title string) { fmt.Fprintf(b, "%s\n", title) }

	fmt.Fprintf(b, "%-48s %12s  %s\n", "", "by hand", "simulated")
	head("Demand, over the fleet")
	row("calls a minute", short(a.Demand.CallsPerMinute), short(m.Demand.CallsPerMinute))
	row("counted tokens a minute", grouped(rounded(a.Demand.TokensPerMinute)), grouped(rounded(m.Demand.TokensPerMinute)))
	row("calls in flight, if nothing held them back", short(a.Demand.InFlight), short(m.Demand.InFlight))
	head("Quota")
	most := [3]string{m.Served.Binds + " used most", "(too many calls to simulate)", ""}
	if m.Most != nil {
		most = [3]string{m.Most.Binds, fmt.Sprintf("%s  (a demand of %d times that, without MaxWait)",
			short(m.Most.CallsPerReplica), saturation), short(m.Most.RequestsPerReplica)}
	}
	row("limit that binds", a.Binds, most[0])
	row("demand over what may be used", fmt.Sprintf("%.2f", a.Load), "")
	head("Each replica, at most")
	row("calls a minute", whole(a.CallsPerReplica), most[1])
	row("user requests a minute", whole(a.RequestsPerReplica), most[2])
	head("Each replica, at this demand")
	row("user requests a minute served with every call", short(min(a.RequestsPerReplica, a.Demand.RequestsPerMinute/float64(q.Replicas))), short(m.Served.RequestsPerReplica))
	row("calls in flight", short(a.InFlight), short(m.Served.InFlight))
	row("slots", fmt.Sprint(a.Slots), fmt.Sprintf("all in use %s of the time", percent(m.Served.SlotsFull)))
	row("wait of half of the calls, at most", "", wait(m.Served.WaitP50))
	row("wait of 99 of 100 calls, at most", wait(a.WaitP99), wait(m.Served.WaitP99))
	row(fmt.Sprintf("calls turned away after %s", wait(q.MaxWait)), percent(a.Refused), percent(m.Served.Refused))
	if m.Served.Unfit > 0 {
		row("calls larger than a replica's part of the quota", "", percent(m.Served.Unfit))
	}
	row("MaxWait that would serve everybody", wait(a.WaitAll), wait(m.Patient)+"  (99 of 100 calls)")
	head("Provider")
	fullest := q.Headroom
	if s.Traffic.Window == engine.Bucket {
		fullest *= 2 // what a bucket has saved, and what flows in
	}
	row("use of the quota in the fullest minute", "<= "+percent(fullest), percent(m.Served.MaxUse))
	row("429s", "0", fmt.Sprint(m.Served.Throttled))
	if len(q.Tenants) > 1 && m.Skipped == "" {
		head("Tenants: requests served with every call")
		for _, t := range m.Served.Tenants {
			row(t.Name, "", fmt.Sprintf("%d of %d", t.Served, t.Requests))
		}
	}
	b.WriteByte('\n')
}

// writeMeaning says what to do.
func (s sizing) writeMeaning(b *strings.Builder) {
	q, a, m := s.Question, s.Reckoned, s.Simulated
	fmt.Fprintf(b, "Set Slots: %d", a.Slots)
	if replicas := int64(q.Replicas); replicas > 1 {
		b.WriteString(" in each replica, and give its gate")
		for i, l := range q.limits() {
			fmt.Fprintf(b, "%s %s %s", []string{"", " and"}[i], grouped(l.quota/replicas), l.name)
		}
		b.WriteString(" a minute")
	}
	b.WriteString(".\n")
	fmt.Fprintf(b, "A burst of %d user requests at one instant needs %d slots; %s are in use on average.\n",
		q.Burst, q.Burst*q.Calls, short(a.InFlight))
	switch {
	case a.Load < 1 && a.WaitP99 == 0:
		fmt.Fprintf(b, "The quota carries the peak: calls hardly wait for it. MaxWait: %s is ample.\n", wait(q.MaxWait))
	case a.Load < 1:
		fmt.Fprintf(b, "The quota carries the peak, but bursts wait: MaxWait of about %s lets 99 of 100 calls through.\n", wait(a.WaitAll))
	case a.Refused == 0:
		fmt.Fprintf(b, "The peak is above what the quota carries, but it ends before a call has waited %s: expect up to %s.\n", wait(q.MaxWait), wait(a.WaitAll))
	default:
		fmt.Fprintf(b, "The peak is %s above what the quota carries. With MaxWait: %s about %s of the calls are turned away while it\nlasts; to serve everybody, calls at the end of %s would wait %s.\n",
			percent(a.Load-1), wait(q.MaxWait), percent(a.Refused), wait(q.Peak), wait(a.WaitAll))
	}
	if a.Load >= 1 {
		s.writeRemedies(b)
	}
	if m.Skipped != "" {
		fmt.Fprintf(b, "Not simulated: %s.\n", m.Skipped)
		return
	}
	if s.Traffic.Window != engine.Bucket {
		b.WriteString("A gate that mirrors a window keeps a guard of about 2 s in 62, or 3 %, against calls that arrive late.\n")
	}
	fmt.Fprintf(b, "Simulated: %s of virtual time, the last two thirds measured; %s calls, in groups of %d user requests at random instants, each\ngroup at one replica, in turn; sizes and latencies vary (sigma %v); %v windows; seed %d.\n",
		wait(m.Length), grouped(int64(m.Calls)), q.Burst, s.Traffic.Spread, s.Traffic.Window, s.Traffic.Seed)
}

// writeRemedies says by how much each cause would have to change alone.
func (s sizing) writeRemedies(b *strings.Builder) {
	q, a := s.Question, s.Reckoned
	b.WriteString("Either of these would carry it:\n")
	for _, l := range q.limits() {
		if need := a.Demand.CallsPerMinute * float64(l.perCall) / q.Headroom; need > float64(l.quota) {
			fmt.Fprintf(b, "  a quota of %s %s a minute instead of %s\n", grouped(rounded(need)), l.name, grouped(l.quota))
		}
	}
	room := a.CallsPerReplica * float64(q.Replicas)
	if q.TPM > 0 && (q.RPM == 0 || float64(q.RPM)*q.Headroom >= a.Demand.CallsPerMinute) {
		fmt.Fprintf(b, "  calls of at most %s counted tokens\n", grouped(int64(float64(q.TPM)*q.Headroom/a.Demand.CallsPerMinute)))
	}
	if n := int64(room / a.Demand.RequestsPerMinute); n >= 1 {
		fmt.Fprintf(b, "  at most %d calls for a user request\n", n)
	}
	fmt.Fprintf(b, "  at most %s user requests a minute, over the fleet\n", short(a.RequestsPerReplica*float64(q.Replicas)))
}

// short writes a number with one decimal, or none where it has none.
func short(x float64) string { return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0") }

// whole writes what fits whole, and the exact number where that is another.
func whole(x float64) string {
	if n := math.Floor(x); short(x) != short(n) {
		return fmt.Sprintf("%.0f (%s)", n, short(x))
	}
	return short(x)
}

func percent(x float64) string {
	if x > 0 && x < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// wait writes a duration to a tenth of a second, or to a second from a minute
// on, without the parts that are zero.
func wait(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func rounded(x float64) int64 { return int64(math.Round(x)) }

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
