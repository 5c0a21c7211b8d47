package share

import "slices"

// foreign is what was booked in a window as used by somebody else, because the
// provider has said that less is left than the replica thought: of each cell how
// much. While the replica goes by its part of the quota it counts; but it is
// nothing that the replica has spent, to be reported, or to be used again when it
// is forgotten.
type foreign []inCell

// inCell is an amount of a cell.
type inCell struct{ cell, amount int64 }

// add notes a booking, and forgets those of cells before the oldest that the window has.
func (f *foreign) add(cell, amount, oldest int64) {
	if amount <= 0 {
		return
	}
	i := slices.IndexFunc(*f, func(b inCell) bool { return b.cell == cell })
	if i < 0 {
		*f = slices.DeleteFunc(*f, func(b inCell) bool { return b.cell < oldest })
		*f = append(*f, inCell{cell: cell})
		i = len(*f) - 1
	}
	(*f)[i].amount += amount
}

// takeBack undoes all bookings.
func (f *foreign) takeBack(m *mirror) {
	for _, b := range *f {
		m.takeBack(b.cell, b.amount)
	}
	*f = nil
}
