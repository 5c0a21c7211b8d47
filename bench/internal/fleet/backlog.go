package fleet

import "time"

// jainWaiting is Jain's index of what users got in a minute, over those for whom a call
// waited throughout it: a fair line gives them the same. It is the mean over all minutes,
// each with its number of such users; 1 if there are none.
func jainWaiting(l *Log) float64 {
	first := make([]int, l.Config.Users+1) // of each user's calls, in order
	for i := range l.Calls {
		first[l.Calls[i].User+1]++
	}
	for u := range l.Config.Users {
		first[u+1] += first[u]
	}
	order, next := make([]int, len(l.Calls)), append([]int(nil), first...)
	for i := range l.Calls {
		u := l.Calls[i].User
		order[next[u]] = i
		next[u]++
	}
	minutes := make([]struct{ n, sum, squares float64 }, int(l.Config.Length/minute)+1)
	got := make([]float64, len(minutes))
	for u := range l.Config.Users {
		calls := order[first[u]:first[u+1]]
		clear(got)
		for _, i := range calls {
			if r := &l.Calls[i]; r.got() {
				got[r.Counted/minute] += float64(r.Tokens)
			}
		}
		for _, m := range waitedThrough(l, calls) {
			x := got[m]
			minutes[m].n++
			minutes[m].sum += x
			minutes[m].squares += x * x
		}
	}
	var users, total float64
	for _, m := range minutes {
		if m.n > 1 && m.squares > 0 {
			users += m.n
			total += m.sum * m.sum / m.squares
		}
	}
	if users == 0 {
		return 1
	}
	return total / users
}

// waitedThrough lists the minutes in all of which one of the calls waited. They are in the
// order in which they were made.
func waitedThrough(l *Log, calls []int) (list []time.Duration) {
	var from, to time.Duration // a stretch in which one waited
	end := func() {
		for m := (from + minute - 1) / minute; (m+1)*minute <= to; m++ {
			list = append(list, m)
		}
	}
	for _, i := range calls {
		r := &l.Calls[i]
		until := r.Asked + r.waited(l.Config.Length)
		if r.Asked > to {
			end()
			from, to = r.Asked, r.Asked
		}
		to = max(to, until)
	}
	end()
	return list
}
