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

package kubeclient

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// maxObjectBytes is the size of the largest object of a list or event of a watch. An object has up to 3 MiB, and each byte can
// take six when it is escaped.
const maxObjectBytes = 32 << 20

// keptBytes is the largest size of a buffer that is reused for the next object.
const keptBytes = 1 << 20

// ReadList reads a list as the API server sends it and calls each with one object after another, so that at most one is in
// memory. It returns the metadata of the list. The argument of each is valid until each returns.
func ReadList(list io.Reader, each func(object gjson.Result)) (metadata gjson.Result, err error) {
	r := &valueReader{in: bufio.NewReaderSize(list, 64<<10)}
	var raw string
	err = r.members('{', '}', func() error {
		key, err := r.value()
		if err != nil {
			return err
		}
		name := gjson.ParseBytes(key).String()
		if err := r.expect(':'); err != nil {
			return err
		}
		if next, err := r.next(); err != nil || name == "items" && next == '[' {
			return errors.Join(err, r.members('[', ']', func() error {
				object, err := r.value()
				if err == nil {
					each(gjson.Parse(jsonvalue.Text(object)))
				}
				return err
			}))
		}
		value, err := r.value()
		if name == "metadata" {
			raw = string(value)
		}
		return err
	})
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return gjson.Parse(raw), err
}

// valueReader reads JSON values from a stream, without recursion.
type valueReader struct {
	in  *bufio.Reader
	raw []byte
}

// next returns the next byte that is not a space, and leaves it unread.
func (r *valueReader) next() (byte, error) {
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if c > ' ' {
			return c, r.in.UnreadByte()
		}
	}
}

func (r *valueReader) expect(want byte) error {
	c, err := r.next()
	if err != nil {
		return err
	}
	if c != want {
		return fmt.Errorf("unexpected character %q, want %q", c, want)
	}
	_, err = r.in.Discard(1)
	return err
}

// members calls each at the beginning of each member of an object or list.
func (r *valueReader) members(open, end byte, each func() error) error {
	if err := r.expect(open); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch c, err := r.next(); {
		case err != nil:
			return err
		case c == end:
			return r.expect(end)
		case !first:
			if err := r.expect(','); err != nil {
				return err
			}
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// value returns the next value, which is valid until the next call.
func (r *valueReader) value() ([]byte, error) {
	if cap(r.raw) > keptBytes {
		r.raw = nil
	}
	r.raw = r.raw[:0]
	if _, err := r.next(); err != nil {
		return nil, err
	}
	for e := (extent{}); ; {
		if _, err := r.in.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := r.in.Peek(r.in.Buffered())
		n, ended := e.scan(chunk)
		r.raw = append(r.raw, chunk[:n]...)
		_, _ = r.in.Discard(n)
		switch {
		case len(r.raw) > maxObjectBytes:
			return nil, fmt.Errorf("an object has more than %d bytes", maxObjectBytes)
		case ended && len(bytes.TrimSpace(r.raw)) == 0:
			return nil, errors.New("a value is missing")
		case ended:
			return r.raw, nil
		}
	}
}

// extent finds the end of a JSON value that arrives in pieces.
type extent struct {
	depth             int
	inString, escaped bool
}

// scan returns the number of bytes that belong to the value, and whether it ends after them.
func (e *extent) scan(chunk []byte) (n int, ended bool) {
	for i, c := range chunk {
		switch {
		case e.escaped:
			e.escaped = false
		case e.inString && c == '\\':
			e.escaped = true
		case c == '"':
			e.inString = !e.inString
			if !e.inString && e.depth == 0 {
				return i + 1, true
			}
		case e.inString:
		case c == '{', c == '[':
			e.depth++
		case e.depth == 0 && (c == '}' || c == ']' || c == ',' || c == ':' || c <= ' '):
			return i, true // after a number or a word
		case c == '}', c == ']':
			if e.depth--; e.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(chunk), false
}
