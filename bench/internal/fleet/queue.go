package fleet

// kind is what happens in an event.
type kind uint8

const (
	arrives     kind = iota // a home makes a call
	reaches                 // a call comes to the provider
	begins                  // its first item comes back
	ends                    // its last one does
	refused                 // the provider's refusal does
	reachStore              // a replica's request comes to the store
	answered                // the store's reply comes back
	timedOut                // a request was not answered in time
	pollDue                 // a replica's core wants to be polled
	lookDue                 // a replica's lessee has something to do
	fleetChange             // replicas die or join
	second                  // a virtual second has passed
)

// event is something that happens at its time; events of one instant happen in the order
// in which they were made.
type event struct {
	at   int64 // ns since the start
	seq  int64
	who  int32 // a home, a call, a replica or a change
	what kind
	nth  int64 // of a request, or which use of a call's record
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// queue is a heap of events; every node has four children.
type queue struct {
	list []event
	seq  int64
}

const children = 4

func (q *queue) push(at int64, what kind, who int32, nth int64) {
	q.seq++
	e := event{at: at, seq: q.seq, who: who, what: what, nth: nth}
	q.list = append(q.list, e)
	i := len(q.list) - 1
	for i > 0 {
		up := (i - 1) / children
		if !e.before(&q.list[up]) {
			break
		}
		q.list[i] = q.list[up]
		i = up
	}
	q.list[i] = e
}

// pop takes the first event; ok is false if there is none.
func (q *queue) pop() (first event, ok bool) {
	n := len(q.list) - 1
	if n < 0 {
		return event{}, false
	}
	first = q.list[0]
	e := q.list[n]
	q.list = q.list[:n]
	if n == 0 {
		return first, true
	}
	i := 0
	for {
		least := i*children + 1
		if least >= n {
			break
		}
		for k := least + 1; k < min(i*children+1+children, n); k++ {
			if q.list[k].before(&q.list[least]) {
				least = k
			}
		}
		if !q.list[least].before(&e) {
			break
		}
		q.list[i] = q.list[least]
		i = least
	}
	q.list[i] = e
	return first, true
}
