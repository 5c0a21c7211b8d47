package gate

// SetReady keeps a channel with a call, for the shell to find its waiter. It is
// made only for calls that wait, and stays with the record for a later call that
// does: set it to nil if something may still be sent on it, or it was closed.
func (c *Core) SetReady(id ID, ready chan struct{}) {
	if k := id.call(); k != nil {
		k.ready = ready
	}
}

// Leave tells that the shell counts a running call no longer, though its record
// is kept for what may still be reported. It reports false if it was told
// before, or if the call is not running.
func (c *Core) Leave(id ID) bool {
	k := id.running()
	if k == nil || k.is(left) {
		return false
	}
	k.marks |= left
	return true
}

// Forget is End for a call that holds nothing any more, which needs no time. It
// reports false, with nothing changed, if that is not so.
func (c *Core) Forget(id ID) bool {
	k := id.running()
	if k == nil || !k.is(freed) || !k.is(settled) {
		return false
	}
	c.land(k)
	c.recycle(k)
	return true
}

// Cost is what the call takes from a Dim; 0 after its end.
func (c *Core) Cost(id ID, dim int) int64 {
	if k := id.call(); k != nil && dim >= 0 {
		return c.costs(k)[dim]
	}
	return 0
}

// Slots is the number of slots that the call takes; 0 after its end.
func (c *Core) Slots(id ID) int32 {
	if k := id.call(); k != nil {
		return k.slots
	}
	return 0
}

// Max is the largest cost that a Dim can ever admit.
func (c *Core) Max(dim int) int64 { return c.dims[dim].Max() }

// FailWaiting ends the wait of every waiting call. Each must be ended with End.
func (c *Core) FailWaiting() []ID {
	var ids []ID
	for k := range c.waiters() {
		c.end(k)
		ids = append(ids, ID{k, k.gen})
	}
	return ids
}

// waiters are all calls that wait, in no particular order. The set is taken
// before the first is handed out, so that they may be ended meanwhile.
func (c *Core) waiters() map[*call]bool {
	set := make(map[*call]bool, c.waiting)
	for _, k := range c.chosen {
		set[k] = true
	}
	for _, t := range c.timers.items {
		set[t.call] = true
	}
	for _, r := range c.requests {
		for k := r.parked.head; k != nil; k = k.next {
			set[k] = true
		}
	}
	for i := range c.classes {
		cl := &c.classes[i]
		for k := cl.shared.queue.head; k != nil; k = k.next {
			set[k] = true
		}
		for _, f := range cl.flows {
			for k := f.queue.head; k != nil; k = k.next {
				set[k] = true
			}
		}
	}
	return set
}
