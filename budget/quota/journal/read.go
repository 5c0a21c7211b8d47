package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"github.com/headgate-go/headgate/budget/quota"
)

// DamageError says that a part of a file cannot be read, or a record in it.
type DamageError struct {
	// File is its path. What is damaged is from byte From to before byte To.
	File     string
	From, To int64
	// Err says what is wrong with a record; nil if there is none.
	Err error
}

// Error says where it is.
func (e *DamageError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("journal: %s: bytes %d to %d: %v", e.File, e.From, e.To, e.Err)
	}
	return fmt.Sprintf("journal: %s: bytes %d to %d are damaged", e.File, e.From, e.To)
}

// Unwrap returns Err.
func (e *DamageError) Unwrap() error { return e.Err }

// walk reads all records of a directory in order, each once. What is at the end of a
// file and no record is passed over: it was torn, or is being written. Files may be
// removed meanwhile.
func walk(dir string, each func(*decoded, error) bool) {
	all, err := list(dir)
	if err != nil {
		each(nil, err)
		return
	}
	last := uint64(0)
	for _, s := range all {
		data, err := os.ReadFile(s.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			if !each(nil, fmt.Errorf("journal: %w", err)) {
				return
			}
			continue
		}
		for x := range pieces(data) {
			if x.payload == nil {
				if x.end < len(data) && !each(nil, &DamageError{File: s.path, From: int64(x.at), To: int64(x.end)}) {
					return
				}
				continue
			}
			d, err := decode(x.payload)
			if err != nil {
				if !each(nil, &DamageError{s.path, int64(x.at), int64(x.end), err}) {
					return
				}
				continue
			}
			switch d.kind {
			case settleKind, countKind, eraseKind:
				if d.n <= last { // it was written again, as nobody knew whether it was
					continue
				}
				last = d.n
			}
			if !each(&d, nil) {
				return
			}
		}
	}
}

// records is walk that passes over what is damaged, as Open has told of it.
func records(dir string, each func(*decoded) bool) (err error) {
	walk(dir, func(x *decoded, e error) bool {
		if damage := (*DamageError)(nil); errors.As(e, &damage) {
			return true
		}
		if err = e; err != nil {
			return false
		}
		return each(x)
	})
	return err
}

// Read reads the records of a journal's directory in the order in which they were
// written, also while a process writes to it, as far as it is written. A settlement that
// a caller has told twice may be there twice. Outcome is not set, as answers come later;
// nothing is left out.
//
// An error that is a [*DamageError] is about one place, and what follows is read all the
// same; it is the last value after any other.
func Read(dir string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		walk(dir, func(x *decoded, err error) bool {
			switch {
			case err != nil:
				return yield(Record{}, err)
			case x.kind == settleKind, x.kind == countKind:
				return yield(x.record, nil)
			}
			return true
		})
	}
}

// All reads what a journal's directory knows of each reservation, once, in the order in
// which it became known last: what it was settled to in the end, with what it has counted
// for good; or only that, while it is not settled. Outcome is that of its last
// settlement. What the ledger has not taken, as it was released, is left out, and so are
// entries of keys that were erased. It is for an audit: the sum of the charges of all (see
// [Record.Charges]) is what the counters have got from this process in that time.
//
// The directory is read twice, and about 200 bytes are kept for each reservation in it.
// Errors are those of [Read].
func All(dir string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		g, err := gather(dir)
		if err != nil {
			yield(Record{}, err)
			return
		}
		open := map[key]*Record{}
		walk(dir, func(x *decoded, err error) bool {
			if err != nil {
				return yield(Record{}, err)
			}
			if x.kind != settleKind && x.kind != countKind {
				return true
			}
			k := key{x.record.Tree, x.record.ID}
			if !g.void.has(x.n) {
				x.record.Outcome = g.outcomes[x.n]
				if x.record.Outcome == Unanswered && g.answered.has(x.n) {
					x.record.Outcome = Answered
				}
				g.strip(&x.record)
				if old := open[k]; old == nil {
					open[k] = &x.record
				} else {
					old.join(&x.record)
				}
			}
			if g.last[k] != x.n {
				return true
			}
			r := open[k]
			delete(open, k)
			if r == nil { // it was released
				return true
			}
			return yield(*r, nil)
		})
	}
}

// join makes of r what is known after a later record of the same reservation, as a
// ledger would: the first settlement counts, and then corrections in their order.
func (r *Record) join(o *Record) {
	if r.Settled && (!o.Settled || !o.Adjust || o.Seq <= r.Seq) {
		return
	}
	old := *r
	*r = *o
	if r.Taken.IsZero() {
		r.Entries, r.Taken, r.Told, r.Note = old.Entries, old.Taken, old.Told, old.Note
	}
	// A correction has the whole of what it names, and the rest stays.
	for _, e := range old.More {
		if !names(r.More, &e.Counter) {
			r.More = append(r.More, e)
		}
	}
}

func names(entries []quota.Entry, c *quota.Counter) bool {
	for i := range entries {
		if entries[i].Counter == *c {
			return true
		}
	}
	return false
}

// gathered is what must be known before all is read.
type gathered struct {
	last           map[key]uint64 // the last record of each reservation
	answered, void numbers
	outcomes       map[uint64]Outcome // those that are rare
	erased         map[key]uint64
}

func gather(dir string) (*gathered, error) {
	g := &gathered{
		last: map[key]uint64{}, answered: numbers{}, void: numbers{},
		outcomes: map[uint64]Outcome{}, erased: map[key]uint64{},
	}
	err := records(dir, func(x *decoded) bool {
		switch x.kind {
		case settleKind, countKind:
			g.last[key{x.record.Tree, x.record.ID}] = x.n
		case eraseKind:
			g.erased[key{x.record.Tree, x.key}] = x.n
		}
		for _, a := range x.acks {
			switch a.outcome {
			case Answered:
				g.answered.add(a.n)
			case Void:
				g.void.add(a.n)
			default:
				g.outcomes[a.n] = a.outcome
			}
		}
		return true
	})
	return g, err
}

// strip takes out what was erased later.
func (g *gathered) strip(r *Record) {
	r.Entries = without(r.Entries, g.erased, r)
	r.More = without(r.More, g.erased, r)
}

// without are the entries whose keys were not erased after a record.
func without(entries []quota.Entry, erased map[key]uint64, r *Record) (kept []quota.Entry) {
	for _, e := range entries {
		if erased[key{r.Tree, e.Key}] < r.Number {
			kept = append(kept, e)
		}
	}
	return kept
}

// numbers is a set of numbers of records, which lie close together.
type numbers map[uint64]uint64

func (s numbers) add(n uint64)      { s[n/64] |= 1 << (n % 64) }
func (s numbers) has(n uint64) bool { return s[n/64]&(1<<(n%64)) != 0 }
