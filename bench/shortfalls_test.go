package bench_test

// shortfall is a figure of a cell that misses its target.
type shortfall struct{ shape, window, figure string }

// shortfalls are the known ones, with what is reached at the worst: retries and
// the order of what happens at one instant are not fixed by the seed.
var shortfalls = map[shortfall]float64{
	// A provider that serves less than it says: the gate cuts its rate at each
	// refusal, and wins it back slowly, while those who send regardless of
	// refusals keep the quota full, at three refusals for each answer.
	{"below-published", "fixed", "idle"}:               0.09,
	{"below-published", "fixed", "of the best peer"}:   0.95,
	{"below-published", "sliding", "goodput"}:          0.88,
	{"below-published", "sliding", "idle"}:             0.15,
	{"below-published", "sliding", "of the best peer"}: 0.86,
	{"below-published", "bucket", "goodput"}:           0.92,
	{"below-published", "bucket", "idle"}:              0.45,
	{"below-published", "bucket", "of the best peer"}:  0.92,

	// An outage of a minute: when it is over, one call must find that out, and the
	// calls in flight grow from one.
	{"brown-out", "fixed", "idle"}:   0.03,
	{"brown-out", "sliding", "idle"}: 0.03,
	{"brown-out", "bucket", "idle"}:  0.03,

	// A burst whose estimates are three times too high: until the first answers
	// tell, a bucket is thought to be empty that is not.
	{"estimates-over", "bucket", "idle"}: 0.02,

	// The same with estimates that are much too low. The first calls cannot but
	// be refused, since nothing is known: by a window the first one of them, which
	// tells for how long; by a bucket, whose hints are short, some.
	{"estimates-under", "fixed", "429"}:                         4,
	{"estimates-under", "fixed", "429 of the window profile"}:   4,
	{"estimates-under", "fixed", "idle"}:                        0.03,
	{"estimates-under", "sliding", "429"}:                       4,
	{"estimates-under", "sliding", "429 of the window profile"}: 4,
	{"estimates-under", "sliding", "idle"}:                      0.03,
	{"estimates-under", "bucket", "429"}:                        25,
	{"estimates-under", "bucket", "429 of the window profile"}:  150,
	{"estimates-under", "bucket", "idle"}:                       0.05,

	// A fixed quota lets a burst in twice that comes at the edge of its minute.
	// Who mirrors a sliding window, because the edges are not published, cannot
	// have that.
	{"herd", "fixed", "makespan"}: 1.56,

	// At its target, now a little below it and now a little above: retries and the
	// order of what happens at one instant are not fixed. Nothing can be taken back
	// from the hog: who comes first in line waits for one of four calls of 8 s to end.
	{"hog", "fixed", "p99 of FIFO's"}:   0.22,
	{"hog", "sliding", "p99 of FIFO's"}: 0.22,
	{"hog", "bucket", "p99 of FIFO's"}:  0.22,

	// The same, with the guard for an arrival that takes up to 3 s.
	{"jitter", "fixed", "makespan"}:   1.12,
	{"jitter", "sliding", "makespan"}: 1.12,
	{"jitter", "bucket", "makespan"}:  1.12,

	// The best peer is who sends all at once: it has places filled in the very
	// instant in which they are free, mostly with refusals.
	{"hog", "fixed", "of the best peer"}:   0.97,
	{"hog", "sliding", "of the best peer"}: 0.97,
	{"hog", "bucket", "of the best peer"}:  0.97,

	// A quota that is checked in bursts is paced at 96 %, so that none of them is
	// refused; peers fill it at the price of some that are, or mirror the bucket
	// that the double has.
	{"quantised", "fixed", "of the best peer"}:   0.95,
	{"quantised", "sliding", "of the best peer"}: 0.95,
	{"quantised", "bucket", "of the best peer"}:  0.95,

	// Fair order keeps every user's synthesiser for the end.
	{"review-ten", "fixed", "makespan"}:   1.15,
	{"review-ten", "sliding", "makespan"}: 1.15,
}
