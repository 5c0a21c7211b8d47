package ratelimited

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
	"unicode/utf8"

	"github.com/headgate-go/headgate/budget"
	"github.com/headgate-go/headgate/internal/gate"
	"github.com/headgate-go/headgate/retry"
	"github.com/headgate-go/headgate/usage"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of [Config].
const (
	// DefaultHeadroom is the part of a published quota that is used: other
	// programs may share the project, and providers may throttle early.
	DefaultHeadroom = 0.9
	// DefaultMaxWaiting is the longest line.
	DefaultMaxWaiting = 10_000
	// DefaultAgentLabels is the number of agent labels that metrics and learned
	// estimates tell apart; further ones share the label "other".
	DefaultAgentLabels = 64
)

// Order is the order in which waiting calls are served.
type Order uint8

const (
	// Fair serves classes and, within them, flows by weight.
	Fair Order = iota
	// FIFO serves all calls in order of arrival. One hog can then take all.
	FIFO
)

// Class is a share of the gate: traffic of one kind.
type Class struct {
	// MaxSlots is a hard cap on the slots of the class; 0 is none.
	MaxSlots int64
	// MinSlots are reserved: kept free for the class when it does not use them.
	MinSlots int64
	// Name, as given to [WithClass].
	Name string
	// Weight is the class's share relative to the others while they compete; a
	// class that is alone gets everything. Defaults to 1.
	Weight float64
}

// DefaultClasses are used where Config.Classes is empty. A call without a class
// is of class "normal".
func DefaultClasses() []Class {
	return []Class{
		{Name: "normal", Weight: 2},
		{Name: "interactive", Weight: 4},
		{Name: "batch", Weight: 1},
	}
}

// Ceiling bounds what one flow, or one request, may have of a gate.
type Ceiling struct {
	// Share bounds the part of every limit of the profile that it may take per
	// window, in (0, 1]; 0 is no bound.
	Share float64
	// Slots bounds the slots that it may hold at a time; 0 is no bound.
	Slots int64
}

// Config describes a [Gate]. Slots is required; everything else has a default.
type Config struct {
	// AgentLabels is the number of agent labels that metrics and learned
	// estimates tell apart. Defaults to DefaultAgentLabels.
	AgentLabels int
	// Classes of traffic; the first is the default class. Defaults to
	// DefaultClasses.
	Classes []Class
	// FindSlots tells that nobody knows how many calls the provider takes at a time:
	// the number is found, at most Slots. It grows while at least half of it is in
	// use, and loses a tenth when the provider refuses a call for want of a place (see
	// retry.Concurrency), or for a reason that no dimension of the profile stands for.
	// A gate that shares its slots with others must know how many there are; one whose
	// Share leaves it its own (Config.OwnSlots of agent and redisbudget) finds those.
	FindSlots bool
	// Flow makes the flow key of a call whose context has none set by WithFlow.
	// Defaults to the UserID that an agent framework's context answers to, if
	// there is one; otherwise all calls share one flow.
	Flow func(ctx context.Context) string
	// FlowWeight is the share of a flow relative to the others of its class. It
	// is asked when a call arrives, and takes effect when the flow next becomes
	// active. Defaults to 1 for each; a result that is not above 0 counts as 1.
	FlowWeight func(class, flow string) float64
	// Headroom is the part of the profile's limits that is used, in (0, 1].
	// Defaults to DefaultHeadroom. A single call between that part and the full
	// limit is admitted when nothing else is on the books.
	Headroom float64
	// History corrects estimates by what earlier calls of the same model and agent
	// label have used, and learns from each call. Share one between gates, and keep
	// its Snapshot over restarts, so that the first calls after one are not guessed
	// at. Defaults to moving averages of the gate's own, which follow a change
	// within a few calls but know no quantiles and start with nothing.
	History *usage.History
	// Logger for what must not be a metric's label. Defaults to slog.Default.
	// Prompts and answers are never logged.
	Logger *slog.Logger
	// MaxWait bounds how long a call waits in line, all attempts together. nil
	// is the context's deadline; 0 is not to wait at all. WithMaxWait overrides
	// it for a call.
	MaxWait *time.Duration
	// MaxWaiting bounds the number of calls in line. Defaults to
	// DefaultMaxWaiting.
	MaxWaiting int
	// Name of the gate in metrics and logs. Defaults to the profile's name.
	Name string
	// Order of the line. Defaults to Fair.
	Order Order
	// PerFlow and PerRequest are ceilings for every flow and every request.
	// They bind an agent framework's own parallel agents too, which a width in
	// the program cannot reach.
	PerFlow, PerRequest Ceiling
	// Profile of the provider. Defaults to no limits but the slots.
	Profile Profile
	// Registerer for the Prometheus metrics. Defaults to none.
	Registerer prometheus.Registerer
	// Replicas is the number of programs that share the provider's quota without
	// sharing their counts (see Share for those that do). All of them together must be
	// able to cut to less than the provider gives, so the floors of cuts are divided
	// by it. Defaults to 1. Gate.SetReplicas changes it.
	Replicas int
	// Retry says what an error means and how long to wait before a call is
	// tried again. The zero value has the defaults of package retry.
	Retry retry.Policy
	// Share shares the profile's limits, and where it says so the slots, with other
	// gates: those of other replicas of the program. Limits and Slots are then
	// those of all together, and every gate must name the same. Defaults to none:
	// this gate has the whole quota. See package budget/share.
	Share budget.Sharing
	// Statistic of History for which holds are made: how sure a hold is to cover
	// what a call will use. Defaults to the 95th percentile.
	Statistic usage.Statistic
	// Slots is the number of requests in flight at a time. Required. Little's
	// law is a guide: calls per second times seconds per call.
	Slots int64
}

func (c Config) withDefaults() Config {
	if c.AgentLabels == 0 {
		c.AgentLabels = DefaultAgentLabels
	}
	if len(c.Classes) == 0 {
		c.Classes = DefaultClasses()
	}
	c.Classes = append([]Class(nil), c.Classes...)
	for i := range c.Classes {
		if c.Classes[i].Weight == 0 {
			c.Classes[i].Weight = 1
		}
	}
	if isNilValue(c.Registerer) {
		c.Registerer = nil
	}
	if c.Headroom == 0 {
		c.Headroom = DefaultHeadroom
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = DefaultMaxWaiting
	}
	if c.Name == "" {
		c.Name = c.Profile.Name
	}
	if c.Name == "" {
		c.Name = "default"
	}
	return c
}

// maxSlots keeps sums of slots far from overflow.
const maxSlots = math.MaxInt32

func (c Config) validate() error {
	switch {
	case c.Slots < 1 || c.Slots > maxSlots:
		return fmt.Errorf("ratelimited: Config.Slots is %d, must lie between 1 and %d", c.Slots, maxSlots)
	case c.Replicas < 0:
		return fmt.Errorf("ratelimited: Config.Replicas is %d, must not be negative", c.Replicas)
	case c.AgentLabels < 0:
		return fmt.Errorf("ratelimited: Config.AgentLabels is %d, must not be negative", c.AgentLabels)
	case !(c.Headroom > 0 && c.Headroom <= 1):
		return fmt.Errorf("ratelimited: Config.Headroom is %v, must lie in (0, 1]", c.Headroom)
	case c.MaxWait != nil && *c.MaxWait < 0:
		return fmt.Errorf("ratelimited: Config.MaxWait is %v, must not be negative", *c.MaxWait)
	case c.MaxWaiting < 0:
		return fmt.Errorf("ratelimited: Config.MaxWaiting is %d, must not be negative", c.MaxWaiting)
	case c.Statistic > usage.Mean:
		return fmt.Errorf("ratelimited: Config.Statistic is %v, want P95, P50 or Mean", c.Statistic)
	case c.Order > FIFO:
		return fmt.Errorf("ratelimited: Config.Order is %d, want Fair or FIFO", c.Order)
	case !utf8.ValidString(c.Name):
		return fmt.Errorf("ratelimited: Config.Name is %q, must be valid UTF-8", c.Name)
	case len(c.Classes) > 64:
		return fmt.Errorf("ratelimited: Config.Classes has %d entries, at most 64", len(c.Classes))
	}
	if err := c.Retry.Validate(); err != nil {
		return fmt.Errorf("ratelimited: Config.Retry: %w", err)
	}
	if err := c.PerFlow.validate("PerFlow"); err != nil {
		return err
	}
	if err := c.PerRequest.validate("PerRequest"); err != nil {
		return err
	}
	if err := c.validateClasses(); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for i, d := range c.Profile.Dimensions {
		if err := d.validate(i); err != nil {
			return err
		}
		if seen[d.Name] {
			return fmt.Errorf("ratelimited: Profile.Dimensions[%d].Name is %q, which is taken", i, d.Name)
		}
		if d.Limit == Unknown && !isNilValue(c.Share) {
			return fmt.Errorf("ratelimited: Profile.Dimensions[%d].Limit is Unknown (dimension %q), and Config.Share is set: a quota that is shared must be known", i, d.Name)
		}
		seen[d.Name] = true
	}
	return nil
}

func (c Config) validateClasses() error {
	seen := make(map[string]bool)
	reserved := int64(0)
	for i, cl := range c.Classes {
		switch {
		case cl.Name == "":
			return fmt.Errorf("ratelimited: Config.Classes[%d].Name is empty", i)
		case !utf8.ValidString(cl.Name):
			return fmt.Errorf("ratelimited: Config.Classes[%d].Name is %q, must be valid UTF-8", i, cl.Name)
		case seen[cl.Name]:
			return fmt.Errorf("ratelimited: Config.Classes[%d].Name is %q, which is taken", i, cl.Name)
		case !(cl.Weight > 0) || math.IsInf(cl.Weight, 0):
			return fmt.Errorf("ratelimited: Config.Classes[%d].Weight is %v (class %q), must be positive and finite", i, cl.Weight, cl.Name)
		case cl.MaxSlots < 0:
			return fmt.Errorf("ratelimited: Config.Classes[%d].MaxSlots is %d (class %q), must not be negative", i, cl.MaxSlots, cl.Name)
		case cl.MinSlots < 0 || cl.MinSlots > maxSlots:
			return fmt.Errorf("ratelimited: Config.Classes[%d].MinSlots is %d (class %q), must lie between 0 and %d", i, cl.MinSlots, cl.Name, maxSlots)
		case cl.MaxSlots > 0 && cl.MinSlots > cl.MaxSlots:
			return fmt.Errorf("ratelimited: Config.Classes[%d].MinSlots is %d (class %q), more than its MaxSlots %d", i, cl.MinSlots, cl.Name, cl.MaxSlots)
		}
		seen[cl.Name] = true
		if reserved += cl.MinSlots; reserved > c.Slots {
			return fmt.Errorf("ratelimited: Config.Classes reserve %d slots (MinSlots), more than Config.Slots %d", reserved, c.Slots)
		}
	}
	return nil
}

func (c Ceiling) validate(field string) error {
	switch {
	case c.Slots < 0:
		return fmt.Errorf("ratelimited: Config.%s.Slots is %d, must not be negative", field, c.Slots)
	case !(c.Share >= 0 && c.Share <= 1):
		return fmt.Errorf("ratelimited: Config.%s.Share is %v, must lie in [0, 1]", field, c.Share)
	}
	return nil
}

// core makes the pure core, and tells which of its limits belong to which
// dimension of the profile. shared is nil if the gate has the quota for itself.
func (c Config) core() (core *gate.Core, owner []int, shared budget.Shared, err error) {
	cfg := gate.Config{
		FIFO: c.Order == FIFO, MaxWaiting: c.MaxWaiting, Slots: c.Slots,
		FlowSlots: c.PerFlow.Slots, FlowShare: c.PerFlow.Share,
		RequestSlots: c.PerRequest.Slots, RequestShare: c.PerRequest.Share,
		Replicas: c.Replicas, SearchSlots: c.FindSlots,
	}
	for _, cl := range c.Classes {
		cfg.Classes = append(cfg.Classes, gate.Class{Weight: cl.Weight, MaxSlots: cl.MaxSlots, MinSlots: cl.MinSlots})
	}
	for i, d := range c.Profile.Dimensions {
		list, part, err := d.limiters()
		if err != nil {
			return nil, nil, nil, fmt.Errorf("ratelimited: Profile.Dimensions[%d] (dimension %q): %w", i, d.Name, err)
		}
		for j, l := range list {
			dim := gate.Dim{Limiter: l, Window: d.window(), Headroom: c.Headroom * part[j]}
			if d.Limit == Unknown {
				dim.Window = unknownWindows * d.window()
				dim.Search = &gate.Search{Window: d.window(), Start: d.Start, Least: d.Least, Sliding: d.Shape == Sliding}
			}
			cfg.Dims = append(cfg.Dims, dim)
			owner = append(owner, i)
		}
	}
	if len(cfg.Dims) > gate.MaxDims {
		return nil, nil, nil, fmt.Errorf("ratelimited: Profile.Dimensions need %d limits, at most %d", len(cfg.Dims), gate.MaxDims)
	}
	if !isNilValue(c.Share) {
		if shared, err = c.join(&cfg, owner); err != nil {
			return nil, nil, nil, fmt.Errorf("ratelimited: Config.Share: %w", err)
		}
		if c.FindSlots && cfg.Lender != nil {
			return nil, nil, nil, errors.New("ratelimited: Config.FindSlots is true, and Config.Share shares the slots: replicas that share them must know how many there are")
		}
	}
	return gate.New(cfg), owner, shared, nil
}
