package gate

// heap is a binary min-heap whose items know their place, so that any of them
// can be removed or moved in O(log n).
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
	moved func(t T, i int) // tells an item its index; -1 when it leaves
}

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) push(t T) {
	h.items = append(h.items, t)
	h.up(len(h.items) - 1)
}

func (h *heap[T]) remove(i int) {
	h.moved(h.items[i], -1)
	last := len(h.items) - 1
	t := h.items[last]
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	if i < last {
		h.items[i] = t
		h.fix(i)
	}
}

// fix restores the order after the item at i has changed.
func (h *heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) up(i int) {
	t := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(t, h.items[parent]) {
			break
		}
		h.items[i] = h.items[parent]
		h.moved(h.items[i], i)
		i = parent
	}
	h.items[i] = t
	h.moved(t, i)
}

func (h *heap[T]) down(i int) bool {
	t, start := h.items[i], i
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], t) {
			break
		}
		h.items[i] = h.items[child]
		h.moved(h.items[i], i)
		i = child
	}
	h.items[i] = t
	h.moved(t, i)
	return i > start
}

// timer is a deadline or the end of a backoff.
type timer struct {
	at   int64
	call *call
}

// before puts the end of a backoff before a deadline at the same time: the call
// may still start then.
func (t timer) before(u timer) bool {
	if t.at != u.at {
		return t.at < u.at
	}
	return t.call.state == stateBacking && u.call.state != stateBacking
}

// queue is a doubly linked list of calls in order of arrival.
type queue struct{ head, tail *call }

// insert puts k behind every call that arrived before it. New calls go to the
// tail at once; one that was requeued walks from the head.
func (q *queue) insert(k *call) {
	at := q.tail
	if at != nil && at.seq > k.seq {
		for at = q.head; at != nil && at.seq < k.seq; at = at.next {
		}
		if at == q.head {
			at = nil
		} else {
			at = at.prev
		}
	}
	k.prev = at
	if at == nil {
		k.next, q.head = q.head, k
	} else {
		k.next, at.next = at.next, k
	}
	if k.next == nil {
		q.tail = k
	} else {
		k.next.prev = k
	}
}

func (q *queue) remove(k *call) {
	if k.prev == nil {
		q.head = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		q.tail = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.next, k.prev = nil, nil
}
