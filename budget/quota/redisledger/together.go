package redisledger

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-go/headgate/budget/quota"
)

// A run is one run of a script, which does one request or several. See
// lua/together.lua.
type run struct {
	source *source
	of     []*request
	mixed  bool // they are of more than one tree
	args   []any
	cmd    *redis.Cmd
}

// join has a run do several requests.
func (r *run) join() {
	r.source = r.source.together
	keys, args, counts := 0, 0, make(blob, 0, 2*len(r.of))
	for _, o := range r.of {
		k := o.args[2].(int)
		keys, args = keys+k, args+len(o.args)-3-k
		counts = append(counts, byte(k), byte(len(o.args)-3-k))
	}
	r.args = append(make([]any, 0, 4+keys+args), "evalsha", r.source.sha, keys)
	for _, o := range r.of {
		r.args = append(r.args, o.args[3:3+o.args[2].(int)]...)
	}
	r.args = append(r.args, &counts)
	for _, o := range r.of {
		r.args = append(r.args, o.args[3+o.args[2].(int):]...)
	}
}

// tell gives each request what the script has answered it.
func (r *run) tell() {
	err := r.cmd.Err()
	if len(r.of) == 1 {
		o := r.of[0]
		if o.err = err; err == nil {
			o.reply, _ = r.cmd.Val().(string)
		}
		return
	}
	answers, _ := r.cmd.Val().([]any)
	for i, o := range r.of {
		switch {
		case err != nil:
			o.err = err
		case i >= len(answers):
			o.err = errGarbled
		default:
			o.err = nil
			switch a := answers[i].(type) {
			case string:
				o.reply = a
			case error:
				o.err = a
			default:
				o.err = fmt.Errorf("%w: a script answers with a %T", quota.ErrUnavailable, a)
			}
		}
	}
}
