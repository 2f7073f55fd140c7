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
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"math"
	"slices"
)

// Writer writes a file.
type Writer struct {
	lines    *json.Encoder
	hash     hash.Hash
	contents *contents
}

// NewWriter returns a Writer, after it has written the header.
func NewWriter(w io.Writer, header Header) (*Writer, error) {
	if err := header.check(); err != nil {
		return nil, err
	}
	sum := sha256.New()
	lines := json.NewEncoder(io.MultiWriter(w, sum))
	lines.SetEscapeHTML(false)
	return &Writer{lines, sum, newContents()}, lines.Encode(header)
}

// ErrTooDeep means that an object is nested so deeply that no reader of the file could decode it. Kubernetes stores such objects.
var ErrTooDeep = errors.New("it is nested too deeply for a file")

// Write writes an object, and sets its digest. If it returns ErrTooDeep, it has written nothing. A parent must be written before its children,
// unless Cycle is set, and all sessions before all conversations, and these before all summaries.
func (w *Writer) Write(o *Object) error {
	if err := o.parse(math.MaxInt); err != nil {
		return o.named(err)
	}
	if !json.Valid(slices.Concat([]byte("[["), o.Spec, []byte("]]"))) { // a line has two levels more than the spec, and has the same limit
		return o.named(ErrTooDeep)
	}
	if err := w.contents.add(o); err != nil {
		return o.named(err)
	}
	o.Digest = hex.EncodeToString(o.digest[:])
	return w.lines.Encode(newLine(o))
}

// Close writes the trailer. It does not close the underlying writer.
func (w *Writer) Close() error {
	end := newTrailer(w.contents, hex.EncodeToString(w.hash.Sum(nil)))
	return w.lines.Encode(line{Trailer: &end})
}
