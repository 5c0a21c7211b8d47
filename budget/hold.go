package budget

// MakeHold makes a Hold for a [Limiter] of another package: cost units, and a mark
// that means something to that limiter only. A negative cost counts as 0.
func MakeHold(cost, mark int64) Hold { return Hold{max(cost, 0), mark} }

// Mark is the mark that the limiter of the hold has given it.
func (h Hold) Mark() int64 { return h.mark }
