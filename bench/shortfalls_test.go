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
	{"below-published", "sliding", "idle"}:             0.16,
	{"below-published", "sliding", "of the best peer"}: 0.86,
	{"below-published", "bucket", "goodput"}:           0.84,
	{"below-published", "bucket", "idle"}:              0.46,
	{"below-published", "bucket", "of the best peer"}:  0.84,

	// An outage of a minute: three attempts are over in a few seconds, and the
	// calls of the outage fail instead of waiting for its end. The SDK's five
	// attempts bridge a quarter of it.
	{"brown-out", "fixed", "goodput"}:            0.86,
	{"brown-out", "fixed", "idle"}:               0.11,
	{"brown-out", "fixed", "of the best peer"}:   0.86,
	{"brown-out", "sliding", "goodput"}:          0.86,
	{"brown-out", "sliding", "idle"}:             0.11,
	{"brown-out", "sliding", "of the best peer"}: 0.86,
	{"brown-out", "bucket", "goodput"}:           0.87,
	{"brown-out", "bucket", "idle"}:              0.21,
	{"brown-out", "bucket", "of the best peer"}:  0.87,

	// A burst whose estimates are three times too high: the calls that wait keep
	// the estimates that they came with, whatever is learned meanwhile.
	{"estimates-over", "fixed", "idle"}:       0.15,
	{"estimates-over", "fixed", "makespan"}:   1.23,
	{"estimates-over", "sliding", "idle"}:     0.15,
	{"estimates-over", "sliding", "makespan"}: 1.23,
	{"estimates-over", "bucket", "idle"}:      0.22,
	{"estimates-over", "bucket", "makespan"}:  1.23,

	// The same with estimates that are much too low. The first calls cannot but
	// be refused, since nothing is known; those that wait go on being so.
	{"estimates-under", "fixed", "429"}:                         200,
	{"estimates-under", "fixed", "429 of the window profile"}:   250,
	{"estimates-under", "fixed", "idle"}:                        0.08,
	{"estimates-under", "fixed", "jain"}:                        0.85,
	{"estimates-under", "fixed", "makespan"}:                    1.25,
	{"estimates-under", "sliding", "429"}:                       200,
	{"estimates-under", "sliding", "429 of the window profile"}: 250,
	{"estimates-under", "sliding", "idle"}:                      0.08,
	{"estimates-under", "sliding", "jain"}:                      0.85,
	{"estimates-under", "sliding", "makespan"}:                  1.25,
	{"estimates-under", "bucket", "429"}:                        800,
	{"estimates-under", "bucket", "429 of the window profile"}:  300,
	{"estimates-under", "bucket", "goodput"}:                    0.65,
	{"estimates-under", "bucket", "idle"}:                       0.5,
	{"estimates-under", "bucket", "jain"}:                       0.85,
	{"estimates-under", "bucket", "of the best peer"}:           0.65,

	// A fixed quota lets a burst in twice that comes at the edge of its minute.
	// Who mirrors a sliding window, because the edges are not published, cannot
	// have that.
	{"herd", "fixed", "makespan"}: 1.56,

	// Nothing can be taken back from the hog: who comes first in line waits for one
	// of four calls of 8 s to end.
	{"hog", "fixed", "p99 of FIFO's"}:   0.23,
	{"hog", "sliding", "p99 of FIFO's"}: 0.23,
	{"hog", "bucket", "p99 of FIFO's"}:  0.23,

	// The best peer is who sends all at once: it has places filled in the very
	// instant in which they are free, mostly with refusals.
	{"hog", "fixed", "of the best peer"}:   0.97,
	{"hog", "sliding", "of the best peer"}: 0.97,
	{"hog", "bucket", "of the best peer"}:  0.97,

	// The guard for an arrival that takes up to 3 s, and nothing else.
	{"jitter", "fixed", "makespan"}:   1.14,
	{"jitter", "sliding", "makespan"}: 1.14,
	{"jitter", "bucket", "makespan"}:  1.12,

	// A quota that is checked in bursts is paced at 96 %, so that none of them is
	// refused; peers fill it at the price of some that are, or mirror the bucket
	// that the double has.
	{"quantised", "fixed", "of the best peer"}:   0.94,
	{"quantised", "sliding", "of the best peer"}: 0.94,
	{"quantised", "bucket", "of the best peer"}:  0.94,

	// Fair order keeps every user's synthesiser for the end.
	{"review-ten", "fixed", "makespan"}:   1.16,
	{"review-ten", "sliding", "makespan"}: 1.16,
}
