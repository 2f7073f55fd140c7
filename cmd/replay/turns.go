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

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/catena-dev/catena/store"
)

// turn is one recorded turn.
type turn struct {
	Line     int             `json:"-"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

// turnReader reads turns from a file.
type turnReader struct {
	file  *os.File
	lines *bufio.Reader
	line  int
}

func openTurns(path string) (*turnReader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	lines, err := plain(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unable to read %s: %w", path, err), file.Close())
	}
	return &turnReader{file: file, lines: lines}, nil
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

func (r *turnReader) close() { _ = r.file.Close() }

// next returns the next turn, or io.EOF.
func (r *turnReader) next() (*turn, error) {
	for {
		raw, err := r.lines.ReadBytes('\n')
		if err != nil && (!errors.Is(err, io.EOF) || len(raw) == 0) {
			return nil, err
		}
		r.line++
		if raw = bytes.TrimSpace(raw); len(raw) == 0 {
			continue
		}
		t := &turn{Line: r.line}
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

// identities assigns response IDs to the turns of a run.
type identities struct {
	run  string
	used map[string]bool
}

func newIdentities() *identities {
	return &identities{run: strings.ToLower(rand.Text()[:8]), used: map[string]bool{}}
}

// choose returns the recorded ID, or another one if it is empty or has been used in this run.
func (i *identities) choose(recorded string, line int) string {
	id := recorded
	if id == "" || i.used[id] {
		id = fmt.Sprintf("%s_%d", i.other(cmp.Or(recorded, "resp")), line)
	}
	i.used[id] = true
	return id
}

// other returns an ID for a turn whose recorded ID is taken in the namespace.
func (i *identities) other(id string) string { return id + "_" + i.run }

// session returns the session of a turn.
func (t *turn) session(id, previous string) (*store.Session, error) {
	response := struct {
		Status      string   `json:"status"`
		CreatedAt   *float64 `json:"created_at"`
		CompletedAt *float64 `json:"completed_at"`
	}{}
	if err := json.Unmarshal(t.Response, &response); err != nil {
		return nil, fmt.Errorf("line %d has an invalid response: %w", t.Line, err)
	}
	return &store.Session{
		ResponseID:         id,
		PreviousResponseID: previous,
		Status:             cmp.Or(response.Status, store.StatusCompleted),
		CreatedAt:          unixTime(response.CreatedAt),
		CompletedAt:        unixTime(response.CompletedAt),
		Request:            t.Request,
		Response:           t.Response,
	}, nil
}

func unixTime(seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return time.Unix(int64(*seconds), 0)
}

// recordedID returns the ID of the response, or the empty string if it has none.
func (t *turn) recordedID() string {
	response := struct {
		ID string `json:"id"`
	}{}
	_ = json.Unmarshal(t.Response, &response) // an ID that is not a string is treated as missing
	return response.ID
}
