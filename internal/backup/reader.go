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
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"unicode/utf8"

	sigsjson "sigs.k8s.io/json"
)

// ErrDamaged indicates a file that is not as it was written: it is incomplete, or it was changed.
var ErrDamaged = errors.New("the file is damaged or incomplete")

// Reader reads a file. It trusts nothing in it, and keeps one line in memory.
type Reader struct {
	// Header is the header of the file.
	Header Header

	in           *bufio.Reader
	maxTurnBytes int
	// line is the last line, which is valid until the next one is read, and number is its number.
	line     []byte
	number   int
	hash     hash.Hash
	contents *contents
}

// NewReader reads the header of a file. The bodies of a session may have at most maxTurnBytes together.
func NewReader(in io.Reader, maxTurnBytes int) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 64<<10), maxTurnBytes: maxTurnBytes, hash: sha256.New(), contents: newContents()}
	if err := r.readLine(); err != nil {
		return nil, err
	}
	// A later version may have other fields.
	if err := json.Unmarshal(r.line, &r.Header); err != nil {
		return nil, (&Header{}).check()
	}
	if err := r.Header.check(); err != nil {
		return nil, err
	}
	if err := r.decode(&r.Header); err != nil {
		return nil, err
	}
	r.hash.Write(r.line)
	return r, nil
}

// Next returns the next object. It returns io.EOF after the last one, once the trailer has confirmed that the file is whole, and
// an error that is ErrDamaged if it is not.
func (r *Reader) Next() (*Object, error) {
	if err := r.readLine(); err != nil {
		return nil, err
	}
	var next line
	if err := r.decode(&next); err != nil {
		return nil, err
	}
	o, err := next.object()
	switch {
	case err != nil:
		return nil, r.damaged(err)
	case o == nil:
		return nil, r.end(next.Trailer)
	case o.kind != sessionKind && r.Header.Version == firstVersion:
		return nil, r.damaged(fmt.Errorf("it is a %s, in a file of version %d", kinds[o.kind].noun, firstVersion))
	}
	r.hash.Write(r.line)
	if err := o.parse(r.maxTurnBytes); err != nil {
		return nil, fmt.Errorf("line %d: %w", r.number, o.named(err)) // perhaps of a newer release
	}
	if err := r.contents.add(o); err != nil {
		return nil, r.damaged(o.named(err))
	}
	if hex.EncodeToString(o.digest[:]) != o.Digest {
		return nil, r.damaged(o.named(errors.New("its digest does not match")))
	}
	return o, nil
}

// end checks the trailer, and that nothing follows it.
func (r *Reader) end(t *trailer) error {
	if t.SHA256 != hex.EncodeToString(r.hash.Sum(nil)) {
		return r.damaged(errors.New("the SHA-256 in the trailer is not that of the lines before it"))
	}
	if want := newTrailer(r.contents, t.SHA256); *t != want {
		return r.damaged(fmt.Errorf("the trailer is for %d sessions, %d conversations and %d summaries, and there are %d, %d and %d",
			t.Sessions, t.Conversations, t.Summaries, want.Sessions, want.Conversations, want.Summaries))
	}
	if _, err := r.in.Peek(1); err == nil {
		return r.damaged(errors.New("there is more after the trailer"))
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("unable to read the file: %w", err)
	}
	return io.EOF
}

func (r *Reader) damaged(err error) error {
	return fmt.Errorf("%w: line %d: %w", ErrDamaged, r.number, err)
}

// decode decodes the line. Its errors do not quote bodies.
func (r *Reader) decode(into any) error {
	if !utf8.Valid(r.line) {
		return r.damaged(errors.New("it is not UTF-8"))
	}
	strict, err := sigsjson.UnmarshalStrict(r.line, into)
	if err != nil {
		return r.damaged(errors.New("it is not the JSON of an export"))
	}
	if len(strict) > 0 {
		return r.damaged(strict[0])
	}
	return nil
}

// readLine reads the next line, into the memory of the last one.
func (r *Reader) readLine() error {
	r.line = r.line[:0]
	r.number++
	for {
		piece, err := r.in.ReadSlice('\n')
		r.line = append(r.line, piece...)
		switch {
		case len(r.line) > maxLineBytes(r.maxTurnBytes):
			return r.damaged(fmt.Errorf("it has more than %d bytes: a file of turns that are larger than %d bytes requires a higher --max-turn-bytes",
				maxLineBytes(r.maxTurnBytes), r.maxTurnBytes))
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && r.number == 1:
			return (&Header{}).check()
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(r.line)) == 0:
			return fmt.Errorf("%w: it ends after line %d, without its trailer", ErrDamaged, r.number-1)
		case errors.Is(err, io.EOF):
			return r.damaged(errors.New("the file ends in the middle of it"))
		default:
			return fmt.Errorf("unable to read the file: %w", err)
		}
	}
}
