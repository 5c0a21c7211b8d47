package engine

// remembered is the size of an engine's history: some 20 MB when it is full.
const remembered = 1 << 18

// occurrence tells how often calls with one content came before.
type occurrence struct {
	// arrived counts all of them, where there is arrival jitter, which is
	// drawn anew each time.
	arrived uint32
	// tried counts those that passed the limits: the draw for faults depends
	// on it, so that a call which met a fault of chance may be repeated.
	tried uint32
	// served counts those that no fault befell: the latency depends on it, so
	// that the repetition takes as long as the call would have taken.
	served uint32
}

// history counts calls by content. It keeps two generations and drops the
// older one when the younger is full, so its memory is bounded. Of the digest
// it keeps eight bytes.
type history struct {
	// size is the number of different calls that are sure to be remembered;
	// twice as many may be.
	size       int
	young, old map[uint64]occurrence
}

// arrived returns how often the call has arrived before, and counts it.
func (h *history) arrived(d Digest) uint32 {
	o := h.get(d)
	o.arrived++
	h.put(d, o)
	return o.arrived - 1
}

// next returns what came before a call and counts the call as tried.
func (h *history) next(d Digest) occurrence {
	before := h.get(d)
	after := before
	after.tried++
	h.put(d, after)
	return before
}

// served counts the call as served.
func (h *history) served(d Digest) {
	o := h.get(d)
	o.served++
	h.put(d, o)
}

func (h *history) get(d Digest) occurrence {
	if o, ok := h.young[short(d)]; ok {
		return o
	}
	return h.old[short(d)]
}

func (h *history) put(d Digest, o occurrence) {
	if h.young == nil || len(h.young) >= h.size {
		h.young, h.old = make(map[uint64]occurrence), h.young
	}
	h.young[short(d)] = o
}

func short(d Digest) uint64 {
	var n uint64
	for _, b := range d[:8] {
		n = n<<8 | uint64(b)
	}
	return n
}
