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
	"strings"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// event is a server-sent event. It is forwarded as received unless it is replaced.
type event struct {
	// raw is the whole event including the terminating empty line. All line ends are converted to line feeds.
	raw []byte
	// name and data are the values of the event field and of all data fields.
	name, data string
	// others has the lines of all other fields and comments.
	others []byte
}

// replace changes the name and data of the event.
func (e *event) replace(name, data string) {
	e.name, e.data = name, data
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

// replaceOnce replaces a part of the data, and reports whether it did. It does not if the part occurs more than once.
func (e *event) replaceOnce(old, replacement string) bool {
	raw := jsonvalue.Text(e.raw)
	if strings.Count(raw, old) != 1 || strings.Count(e.data, old) != 1 {
		return false
	}
	e.raw, e.data = jsonvalue.Bytes(strings.Replace(raw, old, replacement, 1)), strings.Replace(e.data, old, replacement, 1)
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
	// begun is set after the first line, which may start with a byte order mark.
	begun bool
	// afterCR is set if the last line ended with a carriage return. A line feed that follows belongs to it.
	afterCR bool
}

func newEventReader(r io.Reader, maxBytes int64, hold func(int64) error, give func(int64)) *eventReader {
	return &eventReader{reader: bufio.NewReaderSize(r, 32<<10), max: maxBytes, hold: hold, give: give}
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

// release returns the memory of the last event, which must not be used any more.
func (r *eventReader) release() {
	r.give(r.held)
	r.held = 0
}

// next returns the next event, or io.EOF after the last one. It releases the previous event. An unfinished event at the end of
// the stream is returned if it has data: some engines omit the last empty line, or even the line end before it.
func (r *eventReader) next() (*event, error) {
	r.release()
	e := &event{}
	var data []string
	for {
		line, err := r.line(r.max-int64(len(e.raw)), len(e.raw))
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return nil, err
		}
		if len(line) > 0 {
			e.raw = append(append(e.raw, line...), '\n')
			if value, ok := e.read(line); ok {
				data = append(data, value)
			}
		}
		switch {
		case end && len(data) == 0:
			return nil, io.EOF
		case end || len(line) == 0:
			e.raw = append(e.raw, '\n')
			e.data = strings.Join(data, "\n")
			return e, nil
		}
	}
}

// read parses a line, and returns the value if it is a data field.
func (e *event) read(line []byte) (data string, ok bool) {
	field, value, _ := strings.Cut(string(line), ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "data":
		return value, true
	case "event":
		e.name = value
	default:
		e.others = append(append(e.others, line...), '\n')
	}
	return "", false
}

// line returns the next line without its line end, or the rest of the stream with io.EOF. A line ends with a line feed, a
// carriage return, or both. before is the size of the event's preceding lines.
func (r *eventReader) line(limit int64, before int) ([]byte, error) {
	var line []byte
	for {
		b, err := r.reader.ReadByte()
		if err != nil {
			return line, err
		}
		second := r.afterCR && b == '\n'
		r.afterCR = b == '\r'
		switch {
		case second:
		case b == '\r' || b == '\n':
			if !r.begun {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			r.begun = true
			return line, nil
		case int64(len(line)) >= limit:
			return nil, errTooLarge
		default:
			if len(line) == cap(line) {
				if err := r.reserve(before + 2*len(line)); err != nil {
					return nil, err
				}
			}
			line = append(line, b)
		}
	}
}
