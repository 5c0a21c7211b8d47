package httpgate

import "bytes"

// splitter finds the events of a stream of server-sent events (HTML Living
// Standard, section "Server-sent events") in pieces that may be cut anywhere. It
// gives the data of each event away as it comes and keeps only the name of the
// field that it is at. Comments and other fields are passed over.
type splitter struct {
	data  func(piece []byte) // of the event that is read
	event func()             // it has ended

	state    lineState
	field    [5]byte // the name of the line's field, cut off
	n        int     // its length, cut off or not
	hasData  bool    // the event has data
	lastCR   bool    // a line feed that follows belongs to the line that has ended
	anything bool    // the line is not empty
	mark     int     // bytes of a byte order mark at the stream's beginning; all of them if that is over
}

type lineState uint8

const (
	inName  lineState = iota
	inSpace           // after the colon of a data field
	inData
	inOther // of no interest
)

var newline = []byte{'\n'}

// byteOrderMark may stand before a stream, once, and is no part of it (same
// section).
const byteOrderMark = "\ufeff"

// feed reads the next piece.
func (s *splitter) feed(p []byte) {
	for ; s.mark < len(byteOrderMark) && len(p) > 0; p = p[1:] {
		if p[0] != byteOrderMark[s.mark] { // it is something else
			begun := byteOrderMark[:s.mark]
			if s.mark = len(byteOrderMark); begun != "" {
				s.line([]byte(begun))
			}
			break
		}
		s.mark++
	}
	for len(p) > 0 {
		if s.lastCR {
			s.lastCR = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		n, found := lineEnd(p)
		if n > 0 {
			s.line(p[:n])
		}
		if !found {
			return
		}
		s.lastCR = p[n] == '\r'
		s.endLine()
		p = p[n+1:]
	}
}

// lineEnd is where the line ends.
func lineEnd(p []byte) (n int, found bool) {
	n = bytes.IndexByte(p, '\n')
	if found = n >= 0; !found {
		n = len(p)
	}
	if cr := bytes.IndexByte(p[:n], '\r'); cr >= 0 {
		return cr, true
	}
	return n, found
}

// line reads a piece of a line.
func (s *splitter) line(p []byte) {
	s.anything = true
	for s.state == inName && len(p) > 0 {
		c := p[0]
		p = p[1:]
		switch {
		case c != ':':
			if s.n < len(s.field) {
				s.field[s.n] = c
			}
			if s.n++; s.n > len(s.field) {
				s.state = inOther
			}
		case s.isData():
			s.state = inSpace
			s.begin()
		default:
			s.state = inOther
		}
	}
	if len(p) == 0 {
		return
	}
	if s.state == inSpace {
		s.state = inData
		if p[0] == ' ' {
			p = p[1:]
		}
	}
	if s.state == inData && len(p) > 0 {
		s.data(p)
	}
}

func (s *splitter) isData() bool { return s.n == 4 && string(s.field[:4]) == "data" }

// begin begins a line of data. Lines of one event are joined.
func (s *splitter) begin() {
	if s.hasData {
		s.data(newline)
	}
	s.hasData = true
}

// endLine ends a line, and with an empty one the event.
func (s *splitter) endLine() {
	if s.state == inName && s.isData() {
		s.begin() // a field without a colon is empty
	}
	if !s.anything {
		s.endEvent()
	}
	s.state, s.n, s.anything = inName, 0, false
}

func (s *splitter) endEvent() {
	if s.hasData {
		s.hasData = false
		s.event()
	}
}

// end tells that there is no more. Clients take an event that lacks its empty
// line for a whole one.
func (s *splitter) end() {
	if s.anything {
		s.endLine()
	}
	s.endEvent()
}
