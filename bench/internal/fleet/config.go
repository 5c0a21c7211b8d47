package fleet

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/budget/share"
)

// Mode is a way to share a quota.
type Mode uint8

const (
	// Central replicas ask the store for every call.
	Central Mode = iota
	// Leased replicas hold about one second of their demand.
	Leased
	// Static replicas have an equal part of the quota each.
	Static
	// Alone is not to share: every replica thinks that the quota is its own.
	Alone
)

// Modes are all of them.
func Modes() []Mode { return []Mode{Central, Leased, Static, Alone} }

var modeNames = [...]string{Central: "central", Leased: "leased", Static: "static", Alone: "alone"}

// String is the mode's name.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// shared is the same mode of package share.
func (m Mode) shared() share.Mode {
	switch m {
	case Central:
		return share.Central
	case Static:
		return share.Static
	}
	return share.Leased
}

// Shape is how the calls of a home come; a home is the users that one replica
// serves as long as it lives.
type Shape uint8

const (
	// Bursty homes are on for a quarter of the time and off for the rest, for
	// exponential times; while on, calls come at random at four times the mean rate.
	Bursty Shape = iota
	// Steady homes make calls at random at the mean rate.
	Steady
	// Skewed is Steady, but a tenth of the homes, at least one, makes half of the calls.
	Skewed
)

// Shapes are all of them.
func Shapes() []Shape { return []Shape{Bursty, Steady, Skewed} }

var shapeNames = [...]string{Bursty: "bursty", Steady: "steady", Skewed: "skewed"}

// String is the shape's name.
func (s Shape) String() string {
	if int(s) < len(shapeNames) {
		return shapeNames[s]
	}
	return fmt.Sprintf("Shape(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Spread is a log-normal time.
type Spread struct {
	// Median is the time that half of all take at most.
	Median time.Duration `json:"median"`
	// Sigma is the standard deviation of the logarithm; 0 is no spread.
	Sigma float64 `json:"sigma"`
}

// Change is a change of the fleet.
type Change struct {
	At time.Duration `json:"at"`
	// Kill is how many of the replicas that live die at once, the first ones first.
	// Their calls are lost, and their users go to the others. Somebody must be left
	// once Join have come.
	Kill int `json:"kill,omitempty"`
	// Join is how many come: those that have died, or that were not there until then.
	Join int `json:"join,omitempty"`
}

// Config is a fleet, its traffic and its provider.
type Config struct {
	// Replicas is how many there are, with those that are not there at the start.
	Replicas int `json:"replicas"`
	// Users make the calls. Each has a home. Defaults to 10 for a replica.
	Users int   `json:"users"`
	Mode  Mode  `json:"mode"`
	Shape Shape `json:"shape"`
	// Rate is the mean number of calls per second of a home. Defaults to 8.
	Rate float64 `json:"rate"`
	// Load is the mean demand over the quota. Defaults to 0.5.
	Load float64 `json:"load"`
	// Window is how the provider's quota per minute renews itself.
	Window engine.WindowModel `json:"window"`
	// Length is how long calls come, and the simulation lasts. Defaults to 10 minutes.
	Length time.Duration `json:"length"`
	Seed   uint64        `json:"seed"`
	// Tokens is the mean of what a call uses, log-normal with TokensSigma. Tokens defaults
	// to 1500, and then TokensSigma to 0.5.
	Tokens      float64 `json:"tokens"`
	TokensSigma float64 `json:"tokens_sigma"`
	// Error is the sigma of the factor by which a call uses another number of tokens than
	// was estimated; 0 is to know.
	Error float64 `json:"error"`
	// First is the time from a call's arrival at the provider to its first item, and Rest
	// from that to its last. They default to 600 ms and 3 s, with sigma 0.5.
	First Spread `json:"first"`
	Rest  Spread `json:"rest"`
	// ToStore and ToProvider are one way through the network. They default to 1 ms and
	// 20 ms, with sigma 0.5.
	ToStore    Spread `json:"to_store"`
	ToProvider Spread `json:"to_provider"`
	// On is how long a Bursty home is on, in the mean. Defaults to 30 s.
	On time.Duration `json:"on"`
	// Slots of the whole fleet. Defaults to twice what is in flight when the whole quota
	// is used.
	Slots int64 `json:"slots"`
	// MaxWait is after how long a call that waits gives up; 0 is never.
	MaxWait time.Duration `json:"max_wait"`
	// NoGuard books what the store grants as spent at once: see
	// share.CoordinatorConfig.DebitAtGrant.
	NoGuard bool     `json:"no_guard"`
	Changes []Change `json:"changes,omitempty"`
	// DownFrom and DownTo bound a time in which the store takes in nothing. It lies
	// within Length.
	DownFrom time.Duration `json:"down_from,omitempty"`
	DownTo   time.Duration `json:"down_to,omitempty"`
	// Progress, if not nil, is told how much of Length has passed, every virtual second.
	Progress func(passed time.Duration) `json:"-"`
}

// Bounds of a Config.
const (
	maxReplicas = 10_000
	maxUsers    = 10_000_000
	maxRate     = 10_000
	maxLength   = 24 * time.Hour
)

// WithDefaults fills in what is not set, and checks the rest. The error names the field
// that is wrong and its value.
func (c Config) WithDefaults() (Config, error) {
	def := func(p *float64, v float64) {
		if *p == 0 {
			*p = v
		}
	}
	spread := func(s *Spread, median time.Duration) {
		if *s == (Spread{}) {
			*s = Spread{median, 0.5}
		}
	}
	if c.Users == 0 {
		c.Users = 10 * c.Replicas
	}
	def(&c.Rate, 8)
	def(&c.Load, 0.5)
	if c.Tokens == 0 {
		c.Tokens = 1500
		def(&c.TokensSigma, 0.5)
	}
	spread(&c.First, 600*time.Millisecond)
	spread(&c.Rest, 3*time.Second)
	spread(&c.ToStore, time.Millisecond)
	spread(&c.ToProvider, 20*time.Millisecond)
	if c.Length == 0 {
		c.Length = 10 * time.Minute
	}
	if c.On == 0 {
		c.On = 30 * time.Second
	}
	switch {
	case c.Replicas < 1 || c.Replicas > maxReplicas:
		return c, fmt.Errorf("fleet: Replicas is %d, must be from 1 to %d", c.Replicas, maxReplicas)
	case c.Users < c.Replicas || c.Users > maxUsers:
		return c, fmt.Errorf("fleet: Users is %d, must be from Replicas (%d) to %d", c.Users, c.Replicas, maxUsers)
	case int(c.Mode) >= len(modeNames):
		return c, fmt.Errorf("fleet: Mode is %v", c.Mode)
	case int(c.Shape) >= len(shapeNames):
		return c, fmt.Errorf("fleet: Shape is %v", c.Shape)
	case !(c.Rate > 0 && c.Rate <= maxRate):
		return c, fmt.Errorf("fleet: Rate is %v, must be above 0 and at most %d", c.Rate, maxRate)
	case !(c.Load >= 0.01 && c.Load <= 100):
		return c, fmt.Errorf("fleet: Load is %v, must be from 0.01 to 100", c.Load)
	case c.Window > engine.Bucket:
		return c, fmt.Errorf("fleet: Window is %v, must be sliding, fixed or bucket", c.Window)
	case c.Length < time.Second || c.Length > maxLength:
		return c, fmt.Errorf("fleet: Length is %v, must be from 1s to %v", c.Length, maxLength)
	case !(c.Tokens >= 1 && c.Tokens <= 1e6):
		return c, fmt.Errorf("fleet: Tokens is %v, must be from 1 to 1e6", c.Tokens)
	case c.On < time.Second || c.On > maxLength:
		return c, fmt.Errorf("fleet: On is %v, must be from 1s to %v", c.On, maxLength)
	case c.Slots < 0:
		return c, fmt.Errorf("fleet: Slots is %d, must not be negative", c.Slots)
	case c.MaxWait < 0:
		return c, fmt.Errorf("fleet: MaxWait is %v, must not be negative", c.MaxWait)
	case c.DownFrom < 0:
		return c, fmt.Errorf("fleet: DownFrom is %v, must not be negative", c.DownFrom)
	case c.DownTo < c.DownFrom || c.DownTo > c.Length:
		return c, fmt.Errorf("fleet: DownTo is %v, must be from DownFrom (%v) to Length (%v)", c.DownTo, c.DownFrom, c.Length)
	}
	for _, s := range []struct {
		name   string
		spread Spread
	}{{"First", c.First}, {"Rest", c.Rest}, {"ToStore", c.ToStore}, {"ToProvider", c.ToProvider}} {
		if s.spread.Median < 0 || s.spread.Median > time.Hour || !(s.spread.Sigma >= 0 && s.spread.Sigma <= maxSigma) {
			return c, fmt.Errorf("fleet: %s is %v with sigma %v, must be from 0 to 1h with sigma from 0 to %d", s.name, s.spread.Median, s.spread.Sigma, maxSigma)
		}
	}
	for _, s := range []struct {
		name  string
		sigma float64
	}{{"TokensSigma", c.TokensSigma}, {"Error", c.Error}} {
		if !(s.sigma >= 0 && s.sigma <= maxSigma) {
			return c, fmt.Errorf("fleet: %s is %v, must be from 0 to %d", s.name, s.sigma, maxSigma)
		}
	}
	if err := c.checkChanges(); err != nil {
		return c, err
	}
	if c.Slots == 0 {
		hold := c.First.mean() + c.Rest.mean() + 2*c.ToProvider.mean()
		c.Slots = max(int64(math.Ceil(2*c.callsPerSecond()/c.Load*hold)), int64(c.Replicas))
	}
	return c, nil
}

const maxSigma = 3

// checkChanges checks that changes come in order, that only those die who live, and that
// there is always a replica.
func (c *Config) checkChanges() error {
	for i, ch := range c.Changes { // so that their sums are numbers
		for _, n := range []struct {
			field string
			value int
		}{{"Kill", ch.Kill}, {"Join", ch.Join}} {
			switch {
			case n.value < 0:
				return fmt.Errorf("fleet: Changes[%d].%s is %d, must not be negative", i, n.field, n.value)
			case n.value > maxReplicas:
				return fmt.Errorf("fleet: Changes[%d].%s is %d, must be at most %d", i, n.field, n.value, maxReplicas)
			}
		}
	}
	live, last := c.Replicas-c.absent(), time.Duration(0)
	if live < 1 {
		return fmt.Errorf("fleet: Changes: nobody is there at the start: %d of %d Replicas join later", c.absent(), c.Replicas)
	}
	for i, ch := range c.Changes {
		before := live
		live += ch.Join - ch.Kill
		switch {
		case ch.At < last || ch.At > c.Length:
			return fmt.Errorf("fleet: Changes[%d].At is %v, must be from %v to Length (%v)", i, ch.At, last, c.Length)
		case ch.Kill > before:
			return fmt.Errorf("fleet: Changes[%d].Kill is %d, but %d replicas live then", i, ch.Kill, before)
		case live < 1:
			return fmt.Errorf("fleet: Changes[%d].Kill is %d: no replica is left", i, ch.Kill)
		}
		last = ch.At
	}
	return nil
}

// absent is how many replicas are not there at the start: those that join without
// having died.
func (c *Config) absent() (n int) {
	dead := 0
	for _, ch := range c.Changes {
		dead += ch.Kill - ch.Join
		if dead < 0 {
			n -= dead
			dead = 0
		}
	}
	return n
}

// fewest is the smallest number of replicas that live at a time.
func (c *Config) fewest() int {
	live := c.Replicas - c.absent()
	least := live
	for _, ch := range c.Changes {
		live += ch.Join - ch.Kill
		least = min(least, live)
	}
	return least
}

// mean of a log-normal time, in seconds.
func (s Spread) mean() float64 { return s.Median.Seconds() * math.Exp(s.Sigma*s.Sigma/2) }

// callsPerSecond is the mean of all homes together.
func (c *Config) callsPerSecond() float64 { return c.Rate * float64(c.Replicas) }

// minute is the length of the provider's windows.
const minute = time.Minute

// TokensPerMinute is the quota, so that the mean demand is Load of it.
func (c *Config) TokensPerMinute() int64 {
	return max(int64(60*c.callsPerSecond()*c.Tokens/c.Load), 1)
}

// spareRequests is by how much the quota of requests is larger than what the quota of
// tokens lets pass: tokens bind.
const spareRequests = 1.25

// RequestsPerMinute is the quota of requests.
func (c *Config) RequestsPerMinute() int64 {
	return max(int64(math.Ceil(60*spareRequests*c.callsPerSecond()/c.Load)), 1)
}

// largest is the largest call: one that the quota can hold.
func (c *Config) largest() float64 { return min(50*c.Tokens, float64(c.TokensPerMinute())) }
