package redisbudget

import (
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget/share"
)

// The parts of the script. See lua/state.lua for how a quota is kept.
var (
	//go:embed lua/state.lua
	stateLua string
	//go:embed lua/mirror.lua
	mirrorLua string
	//go:embed lua/replicas.lua
	replicasLua string
	//go:embed lua/step.lua
	stepLua string
)

// doLua is one step of the coordinator.
var doLua = strings.Join([]string{stateLua, mirrorLua, replicasLua, stepLua}, "\n")

// doSHA is the name by which a server knows it.
var doSHA = func() string {
	sum := sha1.Sum([]byte(doLua))
	return hex.EncodeToString(sum[:])
}()

// ErrOtherLimits says that replicas of one quota do not agree on its dimensions: how
// many there are, their shapes, windows and cells. Limits may differ; the smallest
// is in force. It ends when the leases of those that name others are over.
var ErrOtherLimits = errors.New("redisbudget: the replicas that share the quota name other dimensions than this one does; give it another Config.Name, or wait until they are gone")

// errGarbled says that a script has answered what it never does.
var errGarbled = errors.New("redisbudget: the answer of the script is garbled")

// keysOf are the keys of a quota, all in one slot of a Cluster: what stands between
// the braces decides which. A name's own braces are written otherwise.
func keysOf(prefix, name string) []string {
	if name == "" {
		name = "%"
	} else {
		name = tagEscapes.Replace(name)
	}
	keys := make([]string, 0, 5)
	for _, k := range []string{"q", "r", "w", "x", "e"} {
		keys = append(keys, prefix+"share:{"+name+"}:"+k)
	}
	return keys
}

var tagEscapes = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// formOf tells of dimensions what must be the same for all replicas.
func formOf(dims []share.Dim) string {
	var b strings.Builder
	for _, d := range dims {
		fmt.Fprintf(&b, "%v/%d/%d/%t ", d.Shape, d.Window.Microseconds(), d.Cell.Microseconds(), d.Pace)
	}
	return b.String()
}

// numbers are written as an array of MessagePack, which scripts read.
type numbers struct {
	b []byte
	n uint32
}

func newNumbers(room int) *numbers {
	w := &numbers{b: make([]byte, 5, 5+9*room)}
	w.b[0] = 0xdd // array, with its length in four bytes
	return w
}

func (w *numbers) float(f float64) {
	w.b = binary.BigEndian.AppendUint64(append(w.b, 0xcb), math.Float64bits(f))
	w.n++
}

// int writes a whole number. Scripts reckon in float64, which is exact up to 2^53.
func (w *numbers) int(n int64) {
	n = max(min(n, maxAmount), -maxAmount)
	if 0 <= n && n < 128 {
		w.b = append(w.b, byte(n))
	} else {
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xd3), uint64(n))
	}
	w.n++
}

// maxAmount bounds amounts and times, so that sums of some of them are exact.
const maxAmount = 1 << 52

func (w *numbers) micros(d time.Duration) { w.int(d.Microseconds()) }

func (w *numbers) bool(b bool) {
	if b {
		w.int(1)
	} else {
		w.int(0)
	}
}

func (w *numbers) bytes() []byte {
	binary.BigEndian.PutUint32(w.b[1:], w.n)
	return w.b
}

// encode writes a request for the script.
func (s *store) encode(r *share.Request) []byte {
	size := 32
	for i := range r.Dims {
		size += 16 + 2*len(r.Dims[i].Spent)
	}
	w := newNumbers(size)
	w.int(s.clock.now())
	w.int(s.clock.offset.Load())
	w.int(s.keep.Milliseconds())
	w.micros(s.cfg.TTL)
	w.micros(s.cfg.Late)
	w.micros(share.DefaultPoll)
	w.int(int64(max(s.cfg.Replicas, 1)))
	w.micros(s.memory)
	w.int(s.learn)
	w.int(r.Epoch)
	w.int(r.Seq)
	w.int(r.Coordinator)
	w.int(r.Prev)
	w.micros(r.Since)
	w.int(int64(r.Mode))
	w.float(r.Weight)
	w.micros(r.Alone)
	w.bool(r.Leave)
	w.int(int64(len(s.dims)))
	for i, d := range s.dims {
		w.int(int64(d.Shape))
		w.int(d.Limit)
		w.int(d.Burst)
		w.micros(d.Window)
		w.micros(d.Cell)
		w.bool(d.Pace)
		q := &r.Dims[i]
		w.int(q.Has)
		w.int(q.Want)
		w.int(q.Need)
		w.int(q.Limit)
		w.float(q.Share)
		if q.Left != nil {
			w.int(max(q.Left.Units, 0))
			w.micros(q.Left.Reset)
		} else {
			w.int(-1)
			w.int(0)
		}
		w.int(int64(len(q.Spent)))
		for _, sp := range q.Spent {
			w.micros(sp.Age)
			w.int(sp.Amount)
		}
	}
	return w.bytes()
}

// decode reads the answer of the script: see blank in lua/step.lua.
func (s *store) decode(answer any) (share.Reply, error) {
	list, ok := answer.([]any)
	if !ok {
		return share.Reply{}, errGarbled
	}
	v := make([]int64, len(list))
	for i, x := range list {
		if v[i], ok = x.(int64); !ok {
			return share.Reply{}, errGarbled
		}
	}
	n := len(s.dims)
	switch {
	case len(v) == 1 && v[0] == -1:
		return share.Reply{}, ErrOtherLimits
	case len(v) != 7+4*n:
		return share.Reply{}, fmt.Errorf("%w: it has %s numbers", errGarbled, strconv.Itoa(len(v)))
	}
	reply := share.Reply{
		Stale: v[0] == 1, Epoch: v[1], At: v[2], RetryAfter: time.Duration(v[3]) * time.Microsecond, Replicas: int(v[4]),
		Newest: v[6+4*n], TTL: s.cfg.TTL, Granted: make([]int64, n), Limits: make([]int64, n), Scarce: make([]bool, n),
	}
	if v[5] == 1 {
		reply.Parts = make([]float64, n)
	}
	for i := range n {
		of := v[6+4*i:]
		reply.Granted[i], reply.Limits[i], reply.Scarce[i] = of[0], of[1], of[2] == 1
		if reply.Parts != nil && of[3] > 0 {
			reply.Parts[i] = 1 / float64(of[3])
		}
	}
	return reply, nil
}
