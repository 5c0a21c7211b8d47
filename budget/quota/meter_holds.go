package quota

import (
	"errors"
	"time"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/usage"
)

// holds says how much is to be reserved for a model call, and what it has used is
// worth. Each unit is priced once, and one price holds for reserving and settling.
type holds struct {
	e         *Enforcer
	call      *budget.Call
	now       time.Time
	maxOutput int64 // of the request; 0 is not known
	final     int64 // the output that there is room for; below 0 any

	known  [3]bool
	usages [3]usage.Usage // by policy

	credits *usage.Credits // those of the time of the reservation; nil if there are none

	asked bool // for the price
	price usage.Price
	err   error
}

func (e *Enforcer) holdsOf(call *budget.Call, now time.Time, maxOutput int64) holds {
	return holds{e: e, call: call, now: now, maxOutput: maxOutput, final: -1, credits: e.credits.Load()}
}

// usage is what is to be reserved by a policy.
func (h *holds) usage(p HoldPolicy) usage.Usage {
	if p > Worst {
		p = P95
	}
	if !h.known[p] {
		h.known[p], h.usages[p] = true, h.learned(p)
	}
	u := h.usages[p]
	if h.final >= 0 && u.Output > h.final {
		u.Output, u.Thoughts = h.final, min(u.Thoughts, h.final)
	}
	return u
}

func (h *holds) learned(p HoldPolicy) usage.Usage {
	u := h.call.Usage.Clamp()
	if u.IsZero() { // not known; nothing would fit even where nothing is left
		u.Input = 1
	}
	if history := h.e.cfg.History; history != nil {
		statistic := usage.P95
		if p == Mean {
			statistic = usage.Mean
		}
		learned := history.Factor(h.call.Model, h.call.Agent, statistic, h.now).Apply(u, h.maxOutput)
		if p == Worst {
			u.Input, u.Output = max(u.Input, learned.Input), max(u.Output, learned.Output)
		} else {
			u = learned
		}
	}
	if p == Worst {
		u.Output = max(u.Output, h.maxOutput)
	}
	return u
}

// priceNow is the price of the call, from the first time that it is asked for.
func (h *holds) priceNow() (usage.Price, error) {
	if !h.asked {
		h.asked = true
		if h.e.cfg.Catalog == nil {
			h.err = errors.New("there is no price catalogue")
		} else {
			h.price, h.err = h.e.cfg.Catalog.Price(h.call.Model, h.now, h.e.cfg.Variant)
		}
	}
	return h.price, h.err
}

// cost is what a usage is in a unit.
func (h *holds) cost(unit Unit, u usage.Usage) (n int64, err error) {
	switch unit {
	case Calls:
		return 1, nil
	case Tokens:
		n = u.Clamp().Total()
	case Credits:
		if h.credits == nil {
			return 0, errors.New("there are no weights of credits")
		}
		n, err = h.credits.Cost(u)
	case Money:
		var price usage.Price
		if price, err = h.priceNow(); err == nil {
			var cost usage.Micros
			cost, err = price.Cost(u)
			n = int64(cost)
		}
	}
	return min(n, MaxAmount), err
}

// fits is the most output with which a call costs at most so much in a unit, by a
// policy; ok is false if it costs more even without output.
func (h *holds) fits(unit Unit, p HoldPolicy, most int64) (output int64, ok bool) {
	u := h.usage(p)
	costs := func(output int64) bool {
		v := u
		v.Output, v.Thoughts = output, min(v.Thoughts, output)
		n, err := h.cost(unit, v)
		return err == nil && n <= most
	}
	if !costs(0) {
		return 0, false
	}
	low, high := int64(0), u.Output // costs(low); what is reserved does not fit
	for low < high {
		mid := high - (high-low)/2
		if costs(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low, true
}

// actual is what a usage has cost by unit. Units of which it cannot be told are
// charged what was held of them, and ok is false.
func (h *holds) actual(u usage.Usage, held Amounts, counted [Units]bool) (n Amounts, ok bool) {
	ok = true
	n[Calls], n[Tokens] = 1, min(u.Total(), MaxAmount)
	for _, unit := range [...]Unit{Credits, Money} {
		if !counted[unit] {
			continue
		}
		cost, err := h.cost(unit, u)
		if err != nil {
			ok, cost = false, held[unit]
		}
		n[unit] = cost
	}
	return n, ok
}
