package burst

import (
	"context"
	"time"
)

// oracle sees the provider's own books, and knows what every call will cost and
// when an outage ends: it sends a call in the very instant in which it is
// served.
func oracle() Policy {
	return Policy{
		Name: "oracle", Title: "An oracle that reads the provider's books",
		Settings: "First come first served, one call in the instant in which the provider has room for it, at its true size; the shape's " +
			"slots and MaxWait. Nobody can buy it.",
		applies: func(s *Shape) string {
			if s.Jitter > 0 {
				return "what the provider's books say when a call arrives cannot be known while its way there takes a random time"
			}
			return ""
		},
		make: func(s setting) (admission, error) {
			return &seer{setting: s, slots: make(chan struct{}, s.shape.Slots), turn: make(chan struct{}, 1)}, nil
		},
	}
}

type seer struct {
	setting
	slots chan struct{} // holds a value for each call under way
	turn  chan struct{} // holds a value while a call is next in line
}

func (*seer) close() error { return nil }

func (o *seer) serve(ctx context.Context, c *call, send sender) error {
	err := within(ctx, o.shape, func(ctx context.Context) error { return o.wait(ctx, c) })
	if err != nil {
		return err
	}
	defer func() { <-o.slots }()
	admitted := false
	err = send(ctx, func(m moment) bool {
		if m == letIn {
			admitted = true
			<-o.turn
		}
		return true
	})
	if !admitted {
		<-o.turn
	}
	return err
}

// wait returns when the call is next and fits. It then has the turn and a slot.
func (o *seer) wait(ctx context.Context, c *call) error {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		<-o.turn
		return ctx.Err()
	}
	for {
		// Who never fits is refused when it is sent, and whoever needs a place at
		// the provider that nobody knows the time of looks again soon.
		left := o.provider.engine.Fits(amounts(c))
		if left == 0 || c.tokens > o.shape.granted(o.shape.TokensPerMinute) {
			return nil
		}
		if err := sleep(ctx, min(left, time.Second)); err != nil {
			<-o.slots
			<-o.turn
			return err
		}
	}
}
