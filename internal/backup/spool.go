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

package backup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool keeps the objects of a kind in a temporary file, because they do not arrive in the order in which they are written. Nobody else can
// open the file, and it is gone when the process ends.
type spool struct {
	kind  kind
	file  *os.File
	out   *bufio.Writer
	end   int64
	index []spooled
	// unreadable is the number of objects that could not be decoded.
	unreadable int
}

// spooled is an object of a spool.
type spooled struct {
	offset int64
	name   string
	// link is the name of the parent of a session, the UID of a conversation, and the UID of the conversation that owns a summary.
	link string
}

func newSpool(kind kind) (*spool, error) {
	file, err := os.CreateTemp("", "catena-export-")
	if err == nil {
		err = os.Remove(file.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("unable to create a temporary file, for which TMPDIR can name another directory: %w", err)
	}
	return &spool{kind: kind, file: file, out: bufio.NewWriterSize(file, 64<<10)}, nil
}

// reset removes all objects.
func (s *spool) reset() error {
	s.out.Reset(s.file)
	s.end, s.index, s.unreadable = 0, nil, 0
	_, err := s.file.Seek(0, io.SeekStart)
	return errors.Join(err, s.file.Truncate(0))
}

// add adds an object.
func (s *spool) add(o *Object, link string) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	s.index = append(s.index, spooled{s.end, o.Name, link})
	s.end += int64(len(data))
	if _, err := s.out.Write(data); err != nil {
		return fmt.Errorf("unable to write the temporary file: %w", err)
	}
	return nil
}

// flush must be called after the last object, and before read.
func (s *spool) flush() error {
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("unable to write the temporary file: %w", err)
	}
	return nil
}

// read returns the object at a position of the index.
func (s *spool) read(i int) (*Object, error) {
	end := s.end
	if i+1 < len(s.index) {
		end = s.index[i+1].offset
	}
	data := make([]byte, end-s.index[i].offset)
	if _, err := s.file.ReadAt(data, s.index[i].offset); err != nil {
		return nil, fmt.Errorf("unable to read the temporary file: %w", err)
	}
	o := &Object{kind: s.kind}
	return o, json.Unmarshal(data, o)
}

func (s *spool) close() error { return s.file.Close() }
