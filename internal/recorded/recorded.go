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

// Package recorded reads recorded turns from files: for each turn one line of JSON with a "request" and a "response".
package recorded

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Turn is one recorded turn.
type Turn struct {
	Line     int             `json:"-"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

// Reader reads turns from a file. It is not safe for concurrent use.
type Reader struct {
	file  *os.File
	lines *bufio.Reader
	line  int
}

// Open opens a file, which may be gzipped. Close it when it is no longer needed.
func Open(path string) (*Reader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	lines, err := plain(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unable to read %s: %w", path, err), file.Close())
	}
	return &Reader{file: file, lines: lines}, nil
}

// plain returns a reader of the content of r, which may be gzipped.
func plain(r io.Reader) (*bufio.Reader, error) {
	const size = 1 << 20
	buffered := bufio.NewReaderSize(r, size)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(unzipped, size), nil
}

// Close closes the file.
func (r *Reader) Close() { _ = r.file.Close() }

// Next returns the next turn, or io.EOF. The request and the response are objects.
func (r *Reader) Next() (*Turn, error) {
	for {
		raw, err := r.lines.ReadBytes('\n')
		if err != nil && (!errors.Is(err, io.EOF) || len(raw) == 0) {
			return nil, err
		}
		r.line++
		if raw = bytes.TrimSpace(raw); len(raw) == 0 {
			continue
		}
		t := &Turn{Line: r.line}
		if err := json.Unmarshal(raw, t); err != nil {
			return nil, fmt.Errorf("line %d is not a turn: %w", r.line, err)
		}
		for name, snapshot := range map[string]json.RawMessage{"request": t.Request, "response": t.Response} {
			if !bytes.HasPrefix(snapshot, []byte("{")) {
				return nil, fmt.Errorf("line %d is not a turn: %q must be an object", r.line, name)
			}
		}
		return t, nil
	}
}
