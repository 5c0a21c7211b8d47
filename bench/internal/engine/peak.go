package engine

import "time"

// peak measures the largest use of any window, from what was counted and
// nothing else. Instants are durations since its start; they must not go back.
// It is not safe for concurrent use.
type peak interface {
	add(now time.Duration, amount int64)
	// largest returns the largest use so far.
	largest() int64
}

// slidingPeak measures over all half-open windows of one length, wherever they
// start. The use of a window can only be largest where the window ends at a
// call: moving its end back to its last call drops nothing and may take in
// earlier ones. So it is enough to look back once per call.
type slidingPeak struct {
	length time.Duration

	recent []use
	head   int
	sum    int64 // of recent[head:]
	most   int64
}

type use struct {
	at     time.Duration
	amount int64
}

func (p *slidingPeak) add(now time.Duration, amount int64) {
	for p.head < len(p.recent) && p.recent[p.head].at+p.length <= now {
		p.sum -= p.recent[p.head].amount
		p.head++
	}
	if p.head > 64 && p.head > len(p.recent)/2 { // each entry is moved at most once on average
		p.recent = p.recent[:copy(p.recent, p.recent[p.head:])]
		p.head = 0
	}
	p.recent = append(p.recent, use{now, amount})
	p.sum += amount
	p.most = max(p.most, p.sum)
}

func (p *slidingPeak) largest() int64 { return p.most }

// periodPeak measures over the windows of its bounds: days, for a daily limit.
type periodPeak struct {
	bounds bounds

	start time.Duration
	began bool
	sum   int64
	most  int64
}

func (p *periodPeak) add(now time.Duration, amount int64) {
	if start, _ := p.bounds(now); !p.began || start != p.start {
		p.start, p.began, p.sum = start, true, 0
	}
	p.sum += amount
	p.most = max(p.most, p.sum)
}

func (p *periodPeak) largest() int64 { return p.most }
