package quota

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// The header fields of draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026).
const (
	fieldPolicy = "RateLimit-Policy"
	fieldLimit  = "RateLimit"
)

const (
	// maxFields is the number of limits in the fields of a response; more are left
	// out. Header fields of more than a few kilobytes are refused on their way.
	maxFields = 24
	// maxFieldInteger is the largest Integer of a structured field (RFC 9651 §3.3.1).
	maxFieldInteger = 999_999_999_999_999
	// fieldsPause is how long no fields are made after the ledger has failed to say
	// how limits stand, so that an outage does not slow every request down.
	fieldsPause = 5 * time.Second
)

// quotaField is what the RateLimit fields say about one amount of a limit.
type quotaField struct {
	name   string
	unit   Unit
	quota  int64         // q
	window time.Duration // w; 0 if there is none
	burst  int64         // 0 if it is the quota
	left   int64         // r
	reset  int64         // t, in seconds; 0 if there is none
}

// announce sets the RateLimit fields of a response to a request that passed. That
// they cannot be made is no reason not to serve it.
func (g *edge) announce(w http.ResponseWriter, r *http.Request, s Subject) {
	now := time.Now()
	if g.cfg.FieldsOnDenialOnly || now.UnixNano() < g.silent.Load() {
		return
	}
	all, err := g.e.Status(r.Context(), s)
	if err != nil {
		if r.Context().Err() == nil {
			g.silent.Store(now.Add(fieldsPause).UnixNano())
		}
		return
	}
	units := map[string]int{}
	for i := range all {
		units[all[i].Limit]++
	}
	var fields []quotaField
	for i := range all {
		if f, ok := statusField(&all[i], units[all[i].Limit], now); ok && g.shown[all[i].Scope] && len(fields) < maxFields {
			fields = append(fields, f)
		}
	}
	setFields(w.Header(), fields)
}

// statusField is what is told about how an amount of a limit stands; ok is false if
// it denies nothing. units is how many amounts the limit has.
func statusField(st *LimitStatus, units int, now time.Time) (f quotaField, ok bool) {
	if st.Mode != Enforce || st.Soft && st.Ceiling < 0 {
		return quotaField{}, false
	}
	f = quotaField{name: fieldName(st.Limit, st.Unit, units), unit: st.Unit, quota: st.Max, left: st.Left, window: st.Window.Per()}
	switch {
	case st.Soft: // only the ceiling denies
		f.quota = st.Ceiling
		f.left = max(st.Ceiling-addAmounts(max(st.Committed, 0), max(st.Reserved, 0)), 0)
	case st.Window.IsRolling():
		if st.Burst != st.Max {
			f.burst = st.Burst
		}
		if st.Max > 0 && st.Committed > 0 { // until there is one unit more, after debts
			missing := max(st.Committed-st.Burst, 0) + 1
			f.reset = secondsUntil(float64(missing) / float64(st.Max) * float64(st.Window.Per()))
		}
	}
	if !st.ResetsAt.IsZero() {
		f.reset = wholeSeconds(st.ResetsAt.Sub(now))
	}
	return f, true
}

// secondsUntil is a time in nanoseconds that may be too long for a Duration.
func secondsUntil(d float64) int64 {
	if d >= math.MaxInt64 {
		return wholeSeconds(math.MaxInt64)
	}
	return wholeSeconds(time.Duration(d))
}

// fieldName names an amount of a limit: by the limit's name, and its unit if there are
// several.
func fieldName(limit string, u Unit, units int) string {
	if units > 1 {
		return limit + ":" + u.String()
	}
	return limit
}

// denialFields sets the RateLimit fields of a denial: those of the limit that denied.
// Others would tell a client to wait for another time than Retry-After does. What
// was set before is taken back. The report is given the same name of the policy.
func (g *edge) denialFields(h http.Header, r *http.Request, d *Denial, p *Problem, turn *Turn) {
	h.Del(fieldPolicy)
	h.Del(fieldLimit)
	if p.Status != http.StatusTooManyRequests {
		return
	}
	l := g.limit(r, d, turn)
	if l == nil {
		return
	}
	quota := l.Max[d.Unit]
	f := quotaField{
		name: fieldName(l.Name, d.Unit, len(l.Max)), unit: d.Unit, quota: quota,
		window: l.Window.Per(), left: d.Left(), reset: p.RetryAfter,
	}
	p.Violated = []string{f.name}
	if l.rolling() {
		if burst := l.Burst[d.Unit]; burst != quota {
			f.burst = burst
		}
	} else if l.Soft {
		f.quota = d.Max
	}
	if g.shown[d.Scope] {
		setFields(h, []quotaField{f})
	}
}

// setFields sets the fields. Names that no structured field can have are left out.
func setFields(h http.Header, fields []quotaField) {
	policy, limit := make([]byte, 0, 64*len(fields)), make([]byte, 0, 48*len(fields))
	for i := range fields {
		f := &fields[i]
		if badField(f.name) {
			continue
		}
		if len(limit) > 0 {
			policy, limit = append(policy, ", "...), append(limit, ", "...)
		}
		policy = appendParameter(appendString(policy, f.name), "q", f.quota)
		if unit := fieldUnit(f.unit); unit != "" {
			policy = append(policy, `;qu="`+unit+`"`...)
		}
		if f.window > 0 {
			policy = appendParameter(policy, "w", wholeSeconds(f.window))
		}
		if f.burst > 0 {
			policy = appendParameter(policy, "headgate-burst", f.burst)
		}
		limit = appendParameter(appendString(limit, f.name), "r", f.left)
		if f.reset > 0 {
			limit = appendParameter(limit, "t", f.reset)
		}
	}
	if len(limit) > 0 {
		h.Set(fieldPolicy, string(policy))
		h.Set(fieldLimit, string(limit))
	}
}

func appendParameter(to []byte, key string, n int64) []byte {
	to = append(append(append(to, ';'), key...), '=')
	return strconv.AppendInt(to, min(max(n, 0), maxFieldInteger), 10)
}

// fieldUnit is the quota unit of the draft; "" for requests, which is the default: one
// request is one turn. The draft's registry knows nothing like model calls, tokens,
// credits and money. These are named as they are here, so that nobody takes them for
// requests.
func fieldUnit(u Unit) string {
	switch u {
	case Turns:
		return ""
	case ConcurrentTurns:
		return "concurrent-requests"
	case Money:
		return "micro-dollars"
	}
	return u.String()
}

// appendString appends s as a String of a structured field (RFC 9651 §4.1.6).
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			to = append(to, '\\')
		}
		to = append(to, s[i])
	}
	return append(to, '"')
}
