package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/budget"
)

// The files of a directory are named segment-0000000001.journal, with a number that
// rises.
const (
	segmentPrefix = "segment-"
	segmentSuffix = ".journal"
	lockName      = "lock"
)

// segment is a file. Journal.mu guards what changes.
type segment struct {
	path    string
	number  uint64
	before  uint64 // the number of the last record before it
	created time.Time

	size       int64
	records    int64     // settlements and counts
	unanswered int       // of its settlements
	last       time.Time // when something has happened last to what is in it
}

// happened notes that something has happened to what is in the file.
func (s *segment) happened(at time.Time) {
	if at.After(s.last) {
		s.last = at
	}
}

// segmentNumber is that of a file's name; ok is false if it is none of a segment.
func segmentNumber(name string) (n uint64, ok bool) {
	digits, ok1 := strings.CutPrefix(name, segmentPrefix)
	digits, ok2 := strings.CutSuffix(digits, segmentSuffix)
	if !ok1 || !ok2 || len(digits) < 10 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, err == nil
}

// list are the segments of a directory, the oldest first.
func list(dir string) ([]*segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var all []*segment
	for _, e := range entries {
		if n, ok := segmentNumber(e.Name()); ok && e.Type().IsRegular() {
			all = append(all, &segment{path: filepath.Join(dir, e.Name()), number: n})
		}
	}
	slices.SortFunc(all, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// maxHeader is more than the first frame of a file has.
const maxHeader = 256

// create begins a segment, whose first frame says which records it has. Only the owner
// may read it: it names people.
func create(dir, writer string, number, records uint64, at time.Time) (*segment, *os.File, error) {
	path := filepath.Join(dir, fmt.Sprintf("%s%010d%s", segmentPrefix, number, segmentSuffix))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, err
	}
	head := appendHeader(beginFrame(nil), records, at, writer)
	endFrame(head, 0)
	if _, err = f.Write(head); err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(path) // or it is begun, and has nothing
		return nil, nil, err
	}
	return &segment{path: path, number: number, before: records, created: at, size: int64(len(head)), last: at}, f, nil
}

// syncDir makes the names in a directory durable, where the system can.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // a directory cannot be flushed there
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

// load reads what earlier processes have written, and cuts off what was torn.
func (j *Journal) load() error {
	all, err := list(j.dir)
	if err != nil {
		return err
	}
	for i, s := range all {
		data, err := os.ReadFile(s.path)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		if err := j.loadSegment(s, data, i == len(all)-1); err != nil {
			return fmt.Errorf("journal: %s: %w", s.path, err)
		}
		j.number = max(j.number, s.number)
	}
	for _, p := range j.unanswered {
		p.left = true
	}
	j.left = len(j.unanswered)
	if j.writes == "" {
		j.writes = budget.NewID()
	}
	return nil
}

func (j *Journal) loadSegment(s *segment, data []byte, newest bool) error {
	end := 0 // of the last whole frame
	for x := range pieces(data) {
		if x.payload == nil {
			if x.end == len(data) {
				break
			}
			j.stats.Damaged++
			j.cfg.Logger.Error("journal: a file is damaged, and what was there is lost",
				"file", s.path, "from", x.at, "to", x.end)
			continue
		}
		end = x.end
		d, err := decode(x.payload)
		switch {
		case errors.Is(err, errVersion):
			return err
		case err != nil:
			j.stats.Damaged++
			j.cfg.Logger.Error("journal: a record cannot be read, and is lost", "file", s.path, "at", x.at, "error", err)
			continue
		}
		j.loadRecord(s, x, &d)
	}
	switch {
	case end > 0:
	case len(data) <= maxHeader: // it was begun, and nothing more
		return os.Remove(s.path)
	default:
		j.stats.Damaged++
		j.cfg.Logger.Error("journal: a file has nothing that can be read, and is left alone", "file", s.path)
		return nil
	}
	s.size = int64(len(data))
	if newest && end < len(data) {
		if err := cut(s.path, int64(end)); err != nil {
			return err
		}
		s.size = int64(end)
	}
	j.segments = append(j.segments, s)
	j.size += s.size
	return nil
}

// cut cuts a file off.
func cut(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (j *Journal) loadRecord(s *segment, x piece, d *decoded) {
	j.last = max(j.last, d.n)
	s.happened(d.at)
	switch d.kind {
	case headerKind:
		s.created, s.before, j.writes = d.at, d.n, d.writer
	case countKind:
		s.records++
	case settleKind:
		s.records++
		if again := j.unanswered[d.n]; again != nil { // written twice, as nobody knew whether it was
			again.segment.unanswered--
		}
		s.unanswered++
		j.unanswered[d.n] = &pending{
			n: d.n, at: d.at, key: key{d.record.Tree, d.record.ID}, again: d.again,
			segment: s, off: int64(x.at), size: x.end - x.at,
		}
	case ackKind:
		for _, a := range d.acks {
			p := j.unanswered[a.n]
			if p == nil {
				continue // its file is gone
			}
			delete(j.unanswered, a.n)
			p.segment.unanswered--
			p.segment.happened(d.at)
		}
	case eraseKind:
		j.erased[key{d.record.Tree, d.key}] = d.n
	case gapKind:
		j.gaps = append(j.gaps, d.gap)
	}
}

// read reads a record that is not answered; its file is there still.
func (j *Journal) read(p *pending) (Record, error) {
	j.mu.Lock()
	path, off, size := p.segment.path, p.off, p.size
	j.mu.Unlock()
	f, err := os.Open(path)
	if err != nil {
		return Record{}, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	data := make([]byte, size)
	if _, err := f.ReadAt(data, off); err != nil {
		return Record{}, fmt.Errorf("journal: %w", err)
	}
	payload, ok := frameAt(data, 0)
	if !ok {
		return Record{}, fmt.Errorf("journal: %s is damaged at %d", path, off)
	}
	d, err := decode(payload)
	if err != nil {
		return Record{}, fmt.Errorf("journal: %s at %d: %w", path, off, err)
	}
	return d.record, nil
}
