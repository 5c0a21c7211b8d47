package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

// maxEntries is how much of what happened is shown.
const maxEntries = 30

// board is what the page shows: how all budgets stand, how the gate does, and what
// happened last. It costs nothing while nobody looks.
type board struct {
	enforcer *quota.Enforcer
	gate     *ratelimited.Gate

	mu sync.Mutex
	// mu guards all that follows.
	turns   turns
	entries []entry
	last    int64         // id of an entry
	done    chan struct{} // closed when there is nothing more to show
	ended   bool
	viewers int
}

// state is all that there is to show. Every event is a whole state, so that whoever
// has missed some has missed nothing.
type state struct {
	People []holder  `json:"people"`
	Shared []holder  `json:"shared"`
	Turns  turns     `json:"turns"`
	Gate   gateState `json:"gate"`
	Log    []entry   `json:"log"`
}

// holder is somebody who has budgets: a person, a company, or everybody.
type holder struct {
	Name    string         `json:"name"`
	Company string         `json:"company,omitempty"` // of a person
	Plan    string         `json:"plan,omitempty"`    // of a person
	Budgets []budgetStatus `json:"budgets"`
}

// budgetStatus is how a limit stands. Amounts are in units, money in micro-dollars.
type budgetStatus struct {
	Limit    string    `json:"limit"`
	Unit     string    `json:"unit"`
	Window   string    `json:"window,omitempty"`
	Max      int64     `json:"max"`
	Used     int64     `json:"used"`
	Reserved int64     `json:"reserved"`
	Left     int64     `json:"left"`
	ResetsAt time.Time `json:"resetsAt,omitzero"`
}

// turns counts turns. Those that were denied are counted where that is published.
type turns struct {
	UnderWay int64 `json:"underWay"`
	Answered int64 `json:"answered"`
	Denied   int64 `json:"denied"`
	Failed   int64 `json:"failed"`
}

// gateState is how the gate does.
type gateState struct {
	Slots   int64       `json:"slots"`
	InUse   int64       `json:"inUse"`
	Waiting int         `json:"waiting"`
	Limits  []gateLimit `json:"limits"`
}

// gateLimit is how a limit of the provider stands: how much could be sent at once.
type gateLimit struct {
	Name string `json:"name"`
	Room int64  `json:"room"`
	Max  int64  `json:"max"`
}

// entry is something that happened. It has no text of anybody's messages.
type entry struct {
	ID   int64     `json:"id"`
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // of the event
	Who  string    `json:"who,omitempty"`
	Text string    `json:"text"`
}

func newBoard(enforcer *quota.Enforcer, gate *ratelimited.Gate) *board {
	return &board{enforcer: enforcer, gate: gate, done: make(chan struct{})}
}

// change changes what is shown, under the lock.
func (b *board) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
}

// begin notes that a turn has begun, and end that it has ended.
func (b *board) begin() (end func()) {
	b.change(func() { b.turns.UnderWay++ })
	return func() { b.change(func() { b.turns.UnderWay-- }) }
}

func (b *board) answered() { b.change(func() { b.turns.Answered++ }) }
func (b *board) failed()   { b.change(func() { b.turns.Failed++ }) }

// note is told what the enforcer publishes.
func (b *board) note(e quota.Event) {
	text := ""
	denied := false
	switch e := e.(type) {
	case quota.CallSettled:
		if text = "was charged nothing"; e.Outcome != quota.CallReleased {
			text = fmt.Sprintf("was charged %v for %d tokens in and %d out",
				usage.Micros(e.Charged[quota.Money]), e.Usage.Input, e.Usage.Output)
		}
		if e.Corrects {
			text += " in all, as was reported later"
		}
	case quota.Denied:
		denied = !e.Denial.Observed
		if text = "was denied"; e.Denial.Observed {
			text = "would have been denied"
		}
		if e.Denial.Limit != "" {
			text += " by the limit " + e.Denial.Limit
		}
		text += ": " + e.Denial.Problem(e.At).Detail
	case quota.ThresholdReached:
		text = fmt.Sprintf("has brought the limit %s to %d %%", e.Limit, e.Percent)
	case quota.OutageBegan:
		text = "limits cannot be checked any more"
	case quota.OutageEnded:
		text = "limits can be checked again"
	default:
		return
	}
	about := e.About()
	b.change(func() {
		if denied {
			b.turns.Denied++
		}
		b.last++
		b.entries = append(b.entries, entry{b.last, about.At.UTC(), string(e.Kind()), about.Subject.User, text})
		if over := len(b.entries) - maxEntries; over > 0 {
			b.entries = slices.Delete(b.entries, 0, over)
		}
	})
}

// state is how everything stands, as JSON.
func (b *board) state(ctx context.Context) ([]byte, error) {
	b.mu.Lock()
	s := state{Turns: b.turns, Log: append([]entry{}, b.entries...)}
	b.mu.Unlock()

	companies := map[string]int{} // name to index
	everybody := holder{Name: "everybody"}
	for _, p := range people {
		all, err := b.enforcer.Status(ctx, p)
		if err != nil {
			return nil, err
		}
		own := holder{Name: p.User, Company: p.Tenant, Plan: p.Plan}
		at, known := companies[p.Tenant]
		if !known {
			at = len(s.Shared)
			companies[p.Tenant] = at
			s.Shared = append(s.Shared, holder{Name: p.Tenant})
		}
		for i := range all {
			switch all[i].Scope {
			case quota.User:
				own.add(&all[i])
			case quota.Tenant:
				s.Shared[at].add(&all[i])
			case quota.Global:
				everybody.add(&all[i])
			}
		}
		s.People = append(s.People, own)
	}
	s.Shared = append(s.Shared, everybody)
	g := b.gate.Stats()
	s.Gate = gateState{Slots: g.Slots, InUse: g.SlotsInUse, Waiting: g.Waiting}
	for _, d := range g.Dimensions {
		s.Gate.Limits = append(s.Gate.Limits, gateLimit{d.Name, max(d.Level, 0), d.Limit})
	}
	return json.Marshal(&s)
}

// add adds a budget, unless it has it: the same one is found by all who share it.
func (h *holder) add(st *quota.LimitStatus) {
	b := budgetStatus{
		Limit: st.Limit, Unit: st.Unit.String(), Max: st.Max,
		Used: st.Committed, Reserved: st.Reserved, Left: st.Left, ResetsAt: st.ResetsAt,
	}
	if st.Window != (quota.Window{}) {
		b.Window, _, _ = strings.Cut(st.Window.String(), "@") // without the zone
	}
	if st.Window.IsRolling() { // of which reserved is part of committed
		b.Window, b.Max, b.Reserved = "refills", st.Burst, 0
	}
	if !slices.ContainsFunc(h.Budgets, func(o budgetStatus) bool { return o.Limit == b.Limit && o.Unit == b.Unit }) {
		h.Budgets = append(h.Budgets, b)
	}
}
