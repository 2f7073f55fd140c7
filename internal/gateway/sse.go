/*
Copyright 2026 The Catena Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// event is a server-sent event. It is forwarded as received unless it is replaced.
type event struct {
	// raw is the whole event including the terminating empty line. All line ends are converted to line feeds.
	raw []byte
	// name and data are the values of the event field and of all data fields. They may share the memory of raw.
	name, data string
	// at is the index of the data in raw, or 0 if it is not known to be there in one piece.
	at int
	// others has the lines of all other fields and comments.
	others []byte
}

// replace changes the name and data of the event.
func (e *event) replace(name, data string) {
	e.name, e.data, e.at = name, data, 0
	var b bytes.Buffer
	b.Grow(len(data) + len(e.others) + 64)
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.Write(e.others)
	for line := range strings.SplitSeq(data, "\n") {
		b.WriteString("data: ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	e.raw = b.Bytes()
}

// replaceOnce replaces a part of the data, and reports whether it did. It does not if the part occurs more than once, or if the data is not in
// one piece.
func (e *event) replaceOnce(old, replacement string) bool {
	i := strings.Index(e.data, old)
	if i < 0 || e.at == 0 || strings.Contains(e.data[i+len(old):], old) {
		return false
	}
	size := len(e.data) + len(replacement) - len(old)
	i += e.at
	e.raw = slices.Concat(e.raw[:i], jsonvalue.Bytes(replacement), e.raw[i+len(old):])
	e.data = jsonvalue.Text(e.raw[e.at : e.at+size])
	return true
}

// The memory held for an event is eventMemoryFactor times its size: it is read line by line, parsed, modified and written.
// Events of at most smallEvent bytes are part of the memory that every call takes.
const (
	eventMemoryFactor = 6
	smallEvent        = 4 << 10
)

// eventReader reads the events of a stream.
type eventReader struct {
	reader *bufio.Reader
	max    int64
	// hold is called before memory is allocated for an event, and give once the event is no longer in use. held is the amount.
	hold func(bytes int64) error
	give func(bytes int64)
	held int64
	// likely is the size that the next event is expected to have.
	likely int
	// begun is set after the first line, which may start with a byte order mark.
	begun bool
	// afterCR is set if the last line ended with a carriage return. A line feed that follows belongs to it.
	afterCR bool
}

func newEventReader(r io.Reader, maxBytes int64, hold func(int64) error, give func(int64)) *eventReader {
	return &eventReader{reader: bufio.NewReaderSize(r, 32<<10), max: maxBytes, hold: hold, give: give}
}

// release returns the memory of the last event, which must not be used any more.
func (r *eventReader) release() {
	r.give(r.held)
	r.held = 0
}

// next returns the next event, or io.EOF after the last one. It releases the previous event. An unfinished event at the end of
// the stream is returned if it has data: some engines omit the last empty line, or even the line end before it.
func (r *eventReader) next() (*event, error) {
	r.release()
	e := &event{raw: make([]byte, 0, r.likely)}
	var fields fields
	for {
		start := len(e.raw)
		err := r.line(e)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return nil, err
		}
		if !r.begun && !end {
			r.begun = true
			e.raw = bytes.TrimPrefix(e.raw, []byte("\ufeff"))
		}
		empty := len(e.raw) == start
		if !empty {
			fields.read(e, start)
			e.raw = append(e.raw, '\n')
		}
		switch {
		case end && len(fields.data) == 0:
			return nil, io.EOF
		case end || empty:
			e.raw = append(e.raw, '\n')
			r.likely = min(len(e.raw)+len(e.raw)/4, smallEvent)
			fields.set(e)
			return e, nil
		}
	}
}

// fields are the fields of an event that is still being read.
type fields struct {
	name span
	data []span
}

// span is a part of the representation of an event, from an index up to another one.
type span struct{ start, end int }

// read reads the field in the last line of an event, which begins at an index.
func (f *fields) read(e *event, line int) {
	field, value, _ := strings.Cut(jsonvalue.Text(e.raw[line:]), ":")
	at := span{len(e.raw) - len(strings.TrimPrefix(value, " ")), len(e.raw)}
	switch field {
	case "data":
		f.data = append(f.data, at)
	case "event":
		f.name = at
	default:
		e.others = append(append(e.others, e.raw[line:]...), '\n')
	}
}

// set sets the name and the data of an event that has been read.
func (f *fields) set(e *event) {
	if cap(e.raw)-len(e.raw) > smallEvent {
		e.raw = bytes.Clone(e.raw) // a response that is kept shares this memory
	}
	text := jsonvalue.Text(e.raw)
	e.name = text[f.name.start:f.name.end]
	if len(f.data) == 1 {
		e.at, e.data = f.data[0].start, text[f.data[0].start:f.data[0].end]
		return
	}
	size := 0
	for _, line := range f.data {
		size += line.end - line.start + 1
	}
	var b strings.Builder
	b.Grow(size)
	for i, line := range f.data {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text[line.start:line.end])
	}
	e.data = b.String()
}

// lineWindow is how far the end of a line is searched for at a time. Without it, a line feed would be searched for in all that has arrived,
// for each line that ends with a carriage return.
const lineWindow = 1 << 10

// line adds the next line to an event, without its line end, or the rest of the stream with io.EOF. A line ends with a line feed, a
// carriage return, or both.
func (r *eventReader) line(e *event) error {
	for {
		if _, err := r.reader.Peek(1); err != nil {
			return err
		}
		window, _ := r.reader.Peek(min(r.reader.Buffered(), lineWindow))
		if r.afterCR && window[0] == '\n' {
			_, _ = r.reader.Discard(1)
			r.afterCR = false
			continue
		}
		part, ended := window, false
		for _, end := range []byte("\n\r") {
			if i := bytes.IndexByte(part, end); i >= 0 {
				part, ended = part[:i], true
			}
		}
		r.afterCR = ended && window[len(part)] == '\r'
		if err := r.add(e, part); err != nil {
			return err
		}
		if ended {
			_, err := r.reader.Discard(len(part) + 1)
			return err
		}
		_, _ = r.reader.Discard(len(part))
	}
}

// add adds a part of a line to an event, and holds the memory for an event of at least that size. It leaves room for the line feeds that next
// adds.
func (r *eventReader) add(e *event, part []byte) error {
	size := len(e.raw) + len(part)
	if int64(size) > r.max && len(part) > 0 {
		return errTooLarge
	}
	if size += len("\n\n"); size > cap(e.raw) {
		size = max(size, 2*cap(e.raw))
		if err := r.reserve(size); err != nil {
			return err
		}
		e.raw = append(make([]byte, 0, size), e.raw...) // slices.Grow may allocate more than is held
	}
	e.raw = append(e.raw, part...)
	return nil
}

// reserve holds the memory for an event of at least the given size.
func (r *eventReader) reserve(size int) error {
	costs := int64(eventMemoryFactor * size)
	if size <= smallEvent || costs <= r.held {
		return nil
	}
	if err := r.hold(costs - r.held); err != nil {
		return err
	}
	r.held = costs
	return nil
}
