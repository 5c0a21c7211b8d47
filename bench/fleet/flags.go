package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/internal/engine"
	"github.com/headgate-go/headgate/bench/internal/fleet"
	"github.com/headgate-go/headgate/internal/commandline"
)

// options is what the command line says.
type options struct {
	fleet fleet.Config
	modes []fleet.Mode
	json  bool
	plot  string
}

const usageHead = `Usage: fleet [flags]

Simulates replicas that share the quota of one provider, in virtual time, and
prints for each way of sharing: goodput over the best possible, 429s, waits,
fairness, round trips to the store, the largest use of a window, and how soon
the fleet converges after replicas die or join.

Examples:

  fleet -replicas 100 -mode leased
  fleet -replicas 8 -load 0.5 -mode all
  fleet -replicas 100 -shape steady -load 1.5 -mode leased -guard=false
  fleet -replicas 8 -shape steady -load 1.5 -kill 2@3m -join 2@5m -plot fleet

Flags:
`

// parseFlags reads the command line. With -h it prints help to out and returns
// flag.ErrHelp. Any other error is one line that names the flag and the value.
func parseFlags(args []string, out io.Writer) (options, error) {
	o := options{modes: fleet.Modes()}
	c := &o.fleet
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.IntVar(&c.Replicas, "replicas", 8, "`number` of replicas, with those that join later, up to 10000")
	f.IntVar(&c.Users, "users", 0, "`number` of users, up to 10000000 (default 10 for each replica)")
	f.Func("mode", "`names` of ways to share, with commas between: central, leased, static, alone, or all (default all)", o.setModes)
	f.Func("shape", "how calls come: bursty (on for a quarter of the time), steady, or skewed (a tenth of the replicas gets half of the calls) (default bursty)", func(s string) error {
		return oneOf(s, fleet.Shapes(), &c.Shape)
	})
	f.Float64Var(&c.Rate, "rate", 8, "mean `calls` per second that come to a replica")
	f.Float64Var(&c.Load, "load", 0.5, "mean demand, as a `part` of the quota")
	f.TextVar(&c.Window, "window", engine.Sliding, "how the provider's quota renews itself: sliding, fixed or bucket")
	minutes := f.Float64("minutes", 10, "`number` of virtual minutes")
	f.Uint64Var(&c.Seed, "seed", 1, "`seed` of everything random")
	guard := f.Bool("guard", true, "what is granted counts as outstanding until it is spent; -guard=false debits it when it is granted")
	f.Float64Var(&c.Error, "error", 0, "`sigma` of the factor by which a call uses another number of tokens than was estimated")
	f.Float64Var(&c.Tokens, "tokens", 1500, "mean `tokens` of a call")
	f.Float64Var(&c.TokensSigma, "tokens-sigma", 0.5, "`sigma` of the logarithm of that")
	f.Int64Var(&c.Slots, "slots", 0, "calls in flight of the whole fleet at most (default twice what the quota needs)")
	f.DurationVar(&c.MaxWait, "max-wait", 0, "how `long` a call waits before it gives up; 0 is for ever")
	f.DurationVar(&c.On, "on", 30*time.Second, "how `long` a bursty replica is on, in the mean")
	f.DurationVar(&c.ToStore.Median, "to-store", time.Millisecond, "median `time` of one way to the store")
	f.DurationVar(&c.ToProvider.Median, "to-provider", 20*time.Millisecond, "median `time` of one way to the provider")
	jitter := f.Float64("jitter", 0.5, "`sigma` of the logarithm of the times to the store and the provider")
	f.Func("kill", "`number@time` of replicas that die, such as 2@3m; repeat it for more", func(s string) error {
		return o.addChange(s, func(ch *fleet.Change, n int) { ch.Kill = n })
	})
	f.Func("join", "`number@time` of replicas that come: those that have died, or that are not there until then", func(s string) error {
		return o.addChange(s, func(ch *fleet.Change, n int) { ch.Join = n })
	})
	f.Func("down", "`from-to`: the store is down, such as 3m-4m", o.setDown)
	f.BoolVar(&o.json, "json", false, "print a JSON array with the figures of each mode instead of the table")
	f.StringVar(&o.plot, "plot", "", "write a plot to `name`.svg and name.png")
	if err := commandline.Parse(f, args, out, usageHead, ""); err != nil {
		return o, err
	}
	for _, n := range []struct { // 0 would be their defaults
		name  string
		value float64
	}{{"load", c.Load}, {"minutes", *minutes}, {"on", c.On.Seconds()}, {"rate", c.Rate}, {"tokens", c.Tokens}} {
		if !(n.value > 0) {
			return o, fmt.Errorf("-%s is %v, must be above 0", n.name, n.value)
		}
	}
	if longest := (24 * time.Hour).Minutes(); *minutes > longest {
		return o, fmt.Errorf("-minutes is %v, must be at most %v", *minutes, longest)
	}
	c.Length = time.Duration(*minutes * float64(time.Minute))
	c.NoGuard = !*guard
	c.ToStore.Sigma, c.ToProvider.Sigma = *jitter, *jitter
	for _, way := range []*fleet.Spread{&c.ToStore, &c.ToProvider} {
		if *way == (fleet.Spread{}) {
			way.Median = 1 // no time; 0 would be the default
		}
	}
	sortChanges(c.Changes)
	_, err := c.WithDefaults()
	return o, err
}

func (o *options) setModes(s string) error {
	if s == "all" {
		o.modes = fleet.Modes()
		return nil
	}
	o.modes = nil
	for _, name := range strings.Split(s, ",") {
		var m fleet.Mode
		if err := oneOf(name, fleet.Modes(), &m); err != nil {
			return err
		}
		o.modes = append(o.modes, m)
	}
	return nil
}

// oneOf finds the one of all that has a name.
func oneOf[T fmt.Stringer](name string, all []T, found *T) error {
	var list []string
	for _, x := range all {
		if x.String() == name {
			*found = x
			return nil
		}
		list = append(list, x.String())
	}
	return fmt.Errorf("unknown name %q: must be of %s", name, strings.Join(list, ", "))
}

func (o *options) addChange(s string, set func(*fleet.Change, int)) error {
	count, at, ok := strings.Cut(s, "@")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 {
		return errors.New("must be a number, @ and a time, such as 2@3m")
	}
	ch := fleet.Change{}
	if ch.At, err = time.ParseDuration(at); err != nil {
		return err
	}
	set(&ch, n)
	o.fleet.Changes = append(o.fleet.Changes, ch)
	return nil
}

func (o *options) setDown(s string) (err error) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return errors.New("must be two times with - between, such as 3m-4m")
	}
	if o.fleet.DownFrom, err = time.ParseDuration(from); err != nil {
		return err
	}
	o.fleet.DownTo, err = time.ParseDuration(to)
	return err
}

// sortChanges puts changes in order of time; those of one instant stay as they are.
func sortChanges(list []fleet.Change) {
	slices.SortStableFunc(list, func(a, b fleet.Change) int { return cmp.Compare(a.At, b.At) })
}
