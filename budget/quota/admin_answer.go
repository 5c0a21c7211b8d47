package quota

import (
	_ "embed" // of the description
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

//go:embed openapi.json
var openAPIFile []byte

// OpenAPI is the description of the [Admin] handler and of [Problem], as OpenAPI 3.1
// in JSON. Its server is where the handler is mounted.
func OpenAPI() []byte { return slices.Clone(openAPIFile) }

// adminStatus is how one amount of a limit stands.
type adminStatus struct {
	Limit     string    `json:"limit"`
	Scope     Scope     `json:"scope"`
	Window    string    `json:"window,omitempty"`
	Unit      string    `json:"unit"`
	Mode      Mode      `json:"mode"`
	Soft      bool      `json:"soft"`
	Max       int64     `json:"max"`
	Ceiling   *int64    `json:"ceiling,omitempty"`
	Burst     *int64    `json:"burst,omitempty"`
	Committed int64     `json:"committed"`
	Reserved  int64     `json:"reserved"`
	Left      int64     `json:"left"`
	ResetsAt  time.Time `json:"resetsAt,omitzero"`
	FullAt    time.Time `json:"fullAt,omitzero"`
}

// adminLimit is a limit in effect.
type adminLimit struct {
	Name       string           `json:"name"`
	Scope      Scope            `json:"scope"`
	Window     string           `json:"window,omitempty"`
	Max        map[string]int64 `json:"max"`
	Burst      map[string]int64 `json:"burst,omitempty"`
	Soft       bool             `json:"soft"`
	Ceiling    map[string]int64 `json:"ceiling,omitempty"`
	Mode       Mode             `json:"mode"`
	Missing    Missing          `json:"missing"`
	Failure    FailurePolicy    `json:"failure"`
	Hold       HoldPolicy       `json:"hold"`
	MaxWait    string           `json:"maxWait,omitempty"`
	Thresholds []int            `json:"thresholds,omitempty"`
}

// adminStatuses answers a status, a top-up and a reset.
type adminStatuses struct {
	Subject Subject       `json:"subject"`
	Limits  []adminStatus `json:"limits"`
}

// adminEffective answers for the limits of a subject.
type adminEffective struct {
	Subject Subject      `json:"subject"`
	Limits  []adminLimit `json:"limits"`
}

// adminPreview is what a plan would mean.
type adminPreview struct {
	Subject Subject `json:"subject"`
	As      string  `json:"as"`
	// Known is false if the plan is not known, so that the common limits would hold;
	// nil if that cannot be told.
	Known  *bool         `json:"known,omitempty"`
	Limits []adminLimit  `json:"limits"`
	Now    []adminStatus `json:"now"`
	Then   []adminStatus `json:"then"`
}

// adminErased says what was erased.
type adminErased struct {
	Subject  Subject   `json:"subject"`
	Scope    Scope     `json:"scope"`
	ErasedAt time.Time `json:"erasedAt"`
}

// statuses are those of the scopes that the handler deals with.
func (a *admin) statuses(all []LimitStatus) []adminStatus {
	out := make([]adminStatus, 0, len(all))
	for i := range all {
		st := &all[i]
		if !a.in(st.Scope) {
			continue
		}
		o := adminStatus{
			Limit: st.Limit, Scope: st.Scope, Window: st.Window.ID(), Unit: st.Unit.String(), Mode: st.Mode, Soft: st.Soft,
			Max: st.Max, Committed: st.Committed, Reserved: st.Reserved, Left: st.Left,
			ResetsAt: inUTC(st.ResetsAt), FullAt: inUTC(st.FullAt),
		}
		if st.Soft && st.Ceiling >= 0 {
			o.Ceiling = &st.Ceiling
		}
		if st.Window.IsRolling() {
			o.Burst = &st.Burst
		}
		out = append(out, o)
	}
	return out
}

// inUTC is t in UTC; the zero time stays zero.
func inUTC(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// effective are the limits of the scopes that the handler deals with.
func (a *admin) effective(all []Limit) []adminLimit {
	out := make([]adminLimit, 0, len(all))
	for i := range all {
		l := &all[i]
		if !a.in(l.Scope) {
			continue
		}
		o := adminLimit{
			Name: l.Name, Scope: l.Scope, Window: l.Window.ID(),
			Max: l.Max.byName(), Burst: l.Burst.byName(), Soft: l.Soft, Ceiling: l.Ceiling.byName(),
			Mode: l.Mode, Missing: l.Missing, Failure: l.Failure, Hold: l.Hold, Thresholds: l.Thresholds,
		}
		if l.MaxWait != nil {
			o.MaxWait = l.MaxWait.String()
		}
		out = append(out, o)
	}
	return out
}

// byName are the amounts by the names of their units.
func (m Max) byName() map[string]int64 {
	out := make(map[string]int64, len(m))
	for u, n := range m {
		out[u.String()] = n
	}
	return out
}

// writeAnswer writes an answer as JSON; bytes are JSON already.
func writeAnswer(w http.ResponseWriter, answer any) {
	body, ok := answer.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(answer); err != nil { // a limit resolver's own limits may have any mode
			blankProblem(http.StatusInternalServerError, "").ServeHTTP(w, nil)
			return
		}
		body = append(body, '\n')
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client may be gone
}
