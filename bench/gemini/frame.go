package gemini

// frame is how the chunks of a stream are put on the wire.
type frame struct {
	contentType string
	before      string // each chunk
	separator   string // between two chunks
	after       string // each chunk
	end         string // the stream
	empty       string // a stream without chunks
}

// frame returns server-sent events (WHATWG HTML, server-sent events), or one
// JSON array.
func (r *reply) frame() frame {
	if r.events {
		return frame{contentType: "text/event-stream", before: "data: ", after: "\r\n\r\n"}
	}
	return frame{contentType: "application/json; charset=UTF-8", separator: ",\r\n", end: "]\n", empty: "[]\n"}
}

// chunk frames the i-th chunk.
func (f frame) chunk(data []byte, i int) []byte {
	before := f.before
	switch {
	case f.separator == "":
	case i == 0:
		before = "["
	default:
		before = f.separator
	}
	return append(append([]byte(before), data...), f.after...)
}
