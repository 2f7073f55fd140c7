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

package metered

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// TestReadAll: ReadAll returns the data that it reads, and takes the documented amount of memory.
func TestReadAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := bytes.Repeat([]byte("x"), rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 3*maxPiece)).Draw(t, "size"))
		var r io.Reader = bytes.NewReader(want)
		if rapid.Bool().Draw(t, "in halves") {
			r = iotest.HalfReader(r)
		}
		taken := 0
		got, err := ReadAll(r, func(bytes int64) error { taken += int(bytes); return nil })
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes and %v, want %d", len(got), err, len(want))
		}
		if taken < 2*len(want) || taken > 2*len(want)+max(firstPiece, min(2*len(want)+firstPiece, maxPiece)) {
			t.Errorf("%d bytes taken for %d", taken, len(want))
		}
	})
}

// TestReadAllErrors: an error from take or from the reader, even one that looks like the end of the input, is returned.
func TestReadAllErrors(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		r     io.Reader
		limit int64
		want  error
	}{
		"truncated input":             {io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(io.ErrUnexpectedEOF)), 1 << 30, io.ErrUnexpectedEOF},
		"closed connection":           {iotest.ErrReader(fmt.Errorf("closed: %w", io.EOF)), 1 << 30, io.EOF},
		"refused":                     {bytes.NewReader(make([]byte, 10)), 1, refused},
		"refused at the end":          {bytes.NewReader(make([]byte, 10)), firstPiece, refused},
		"refused for a later piece":   {bytes.NewReader(make([]byte, firstPiece+1)), firstPiece, refused},
		"refused before a read error": {iotest.ErrReader(io.ErrUnexpectedEOF), 1, refused},
	} {
		t.Run(name, func(t *testing.T) {
			taken := int64(0)
			_, err := ReadAll(tc.r, func(bytes int64) error {
				if taken += bytes; taken > tc.limit {
					return refused
				}
				return nil
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestTake(t *testing.T) {
	refused := errors.New("refused")
	ctx := With(t.Context(), func(int64) error { return refused })
	for name, tc := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"counted":           {ctx, refused},
		"not counted":       {t.Context(), nil},
		"counting disabled": {Without(ctx), nil},
	} {
		if err := Take(tc.ctx, 1); !errors.Is(err, tc.want) || Counts(tc.ctx) != (tc.want != nil) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestProcess: operations process data in the turns of their context, or at once if it has none.
func TestProcess(t *testing.T) {
	var sizes []int
	refused := errors.New("not now")
	turns := func(_ context.Context, bytes int, work func() error) error {
		sizes = append(sizes, bytes)
		if bytes > 10 {
			return refused
		}
		return work()
	}
	for name, tc := range map[string]struct {
		ctx     context.Context
		bytes   int
		wantErr error
	}{
		"no turns": {t.Context(), 20, nil},
		"a turn":   {WithTurns(t.Context(), turns), 10, nil},
		"refused":  {WithTurns(t.Context(), turns), 11, refused},
	} {
		got, err := Processed(tc.ctx, tc.bytes, func() (string, error) { return "done", nil })
		if !errors.Is(err, tc.wantErr) || (got == "done") != (tc.wantErr == nil) {
			t.Errorf("%s: got %q and %v", name, got, err)
		}
	}
	if slices.Sort(sizes); !slices.Equal(sizes, []int{10, 11}) {
		t.Errorf("got turns of %v bytes", sizes)
	}
}
