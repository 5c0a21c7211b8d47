package rolling

// A Charge is what is still missing from a bucket because of one cost: the
// cost, less what was refilled and refunded since.
type Charge struct {
	Quantity
	Mark  int64
	Holds int64 // open holds with this mark or one before the next charge's
}

// Charges make a refund exact. The level of a bucket is the smallest of what it
// would be had it been full at any one moment of the past. So refill pays the
// newest charge first (a bucket that was full then is full again), and a refund
// pays the charge of its own cost first, then older ones, and never a newer one:
// when that was made, the bucket may have been full. Otherwise refunds that come
// late would bring back what has flowed over since, and calls that turn out to
// cost nothing would pile up a multiple of the burst.
//
// List goes from the oldest charge to the newest, with rising marks. Only the
// newest may have no holds: any other such charge is part of the next newer one,
// because no refund tells the two apart. So there are at most as many as holds,
// and one.
type Charges struct {
	List  []Charge
	Holds int
}

func (c *Charges) add(q Quantity, mark int64, hold bool, per int64) {
	n := int64(0)
	if hold {
		c.Holds++
		n = 1
	}
	if last := len(c.List) - 1; last >= 0 && c.List[last].Holds == 0 {
		top := &c.List[last]
		top.Quantity, top.Mark, top.Holds = top.Plus(q, per), mark, n
		return
	}
	c.List = append(c.List, Charge{q, mark, n})
}

// refill pays the newest charges first, less than all of them together.
func (c *Charges) refill(q Quantity, per int64) {
	holds := int64(0)
	for i := len(c.List) - 1; i >= 0; i-- {
		top := &c.List[i]
		if q.Less(top.Quantity) {
			top.Quantity = top.Minus(q, per)
			top.Holds += holds
			c.List = c.List[:i+1]
			return
		}
		q = q.Minus(top.Quantity, per)
		holds += top.Holds
	}
	c.List = c.List[:0]
}

// refund pays the charge with a mark and older ones, the newest of them first,
// and returns what was paid.
func (c *Charges) refund(q Quantity, mark, per int64) (paid Quantity) {
	i := c.Find(mark)
	j, rest, holds := i, q, int64(0)
	for ; j >= 0 && !rest.Less(c.List[j].Quantity); j-- {
		rest = rest.Minus(c.List[j].Quantity, per)
		holds += c.List[j].Holds
	}
	if j >= 0 {
		c.List[j].Quantity = c.List[j].Minus(rest, per)
		c.List[j].Holds += holds
		rest = Quantity{}
	}
	c.List = append(c.List[:j+1], c.List[i+1:]...)
	return q.Minus(rest, per)
}

// end ends a hold with a mark.
func (c *Charges) end(mark, per int64) {
	c.Holds--
	i := c.Find(mark)
	if i < 0 {
		return // its charge was paid, and all before it
	}
	x := &c.List[i]
	if x.Holds--; x.Holds == 0 && i+1 < len(c.List) {
		c.List[i+1].Quantity = c.List[i+1].Plus(x.Quantity, per)
		c.List = append(c.List[:i], c.List[i+1:]...)
	}
}

// merge makes the oldest charges one with newer ones, until there are few enough.
func (c *Charges) merge(most int, per int64) {
	over := len(c.List) - most
	if over <= 0 {
		return
	}
	first := &c.List[over]
	for i := range c.List[:over] {
		first.Quantity = first.Plus(c.List[i].Quantity, per)
	}
	c.List = append(c.List[:0], c.List[over:]...)
}

// Find is the index of the newest charge that is not newer than mark, or −1.
func (c *Charges) Find(mark int64) int {
	low, high := 0, len(c.List)
	for low < high {
		if mid := int(uint(low+high) / 2); c.List[mid].Mark <= mark {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// Pool keeps lists of charges for the next bucket that needs one. The zero Pool
// is ready to use.
type Pool struct{ free []*Charges }

// maxPooled bounds how many lists are kept, and maxPooledLen how long they are.
const (
	maxPooled    = 256
	maxPooledLen = 64
)

func (p *Pool) get() *Charges {
	n := len(p.free) - 1
	if n < 0 {
		return new(Charges)
	}
	c := p.free[n]
	p.free = p.free[:n]
	return c
}

func (p *Pool) put(c *Charges) {
	if len(p.free) < maxPooled && cap(c.List) <= maxPooledLen {
		c.List, c.Holds = c.List[:0], 0
		p.free = append(p.free, c)
	}
}
