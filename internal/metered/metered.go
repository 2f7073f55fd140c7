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

// Package metered lets a caller count the memory that an operation takes below it, before it is taken: a program that serves
// several tenants bounds its memory by it. It is for what grows with what was stored or sent, not for what every call takes.
package metered

import (
	"context"
	"errors"
	"io"
	"slices"
)

type key struct{}

// With returns a context whose operations call take with the number of bytes before they take memory, possibly from several
// goroutines at once. If take returns an error, the operation ends with that error. What an operation has taken counts until
// the caller decides otherwise.
func With(ctx context.Context, take func(bytes int64) error) context.Context {
	return context.WithValue(ctx, key{}, take)
}

// Without returns a context whose operations take memory uncounted, because the caller has counted it.
func Without(ctx context.Context) context.Context { return With(ctx, nil) }

// Counts reports whether the memory of operations is counted.
func Counts(ctx context.Context) bool { return taker(ctx) != nil }

// Take is called before memory is taken. If it returns an error, the memory must not be taken.
func Take(ctx context.Context, bytes int64) error {
	if take := taker(ctx); take != nil {
		return take(bytes)
	}
	return nil
}

func taker(ctx context.Context) func(int64) error {
	take, _ := ctx.Value(key{}).(func(int64) error)
	return take
}

// The pieces in which ReadAll reads.
const (
	firstPiece = 4 << 10
	maxPiece   = 512 << 10
)

// ReadAll reads all of r, and calls take before it takes memory: in all for twice the bytes that it reads, and for a last
// piece of at most 512 KiB that may be partly empty. Nothing is taken for what has not begun to arrive.
func ReadAll(r io.Reader, take func(bytes int64) error) ([]byte, error) {
	var pieces [][]byte
	var piece []byte
	for total, size := 0, firstPiece; ; {
		if len(piece) == cap(piece) {
			if err := take(int64(size)); err != nil {
				return nil, err
			}
			pieces = append(pieces, piece)
			piece = make([]byte, 0, size)
			size = min(2*size, maxPiece)
		}
		n, err := r.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		total += n
		if errors.Is(err, io.EOF) {
			if err := take(int64(total)); err != nil {
				return nil, err
			}
			return slices.Concat(append(pieces, piece)...), nil
		}
		if err != nil {
			return nil, err
		}
	}
}
