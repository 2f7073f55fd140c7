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

// Package metered lets a caller count the memory that an operation needs before it is allocated, and limit how much it processes at once, so that
// a program that serves several tenants can bound its memory, and share its CPUs. It covers what grows with the size of stored or received
// data, not the fixed overhead of each call.
package metered

import (
	"context"
	"io"
	"slices"
)

type key struct{}

// With returns a context whose operations call take with the number of bytes before they take memory, possibly from several
// goroutines at once. If take returns an error, the operation ends with that error. Memory stays counted until the caller
// releases it.
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

type objectsKey struct{}

// WithObjects returns a context whose operations call note with the size of each object of an API server that they have read or changed, in
// bytes, possibly from several goroutines at once.
func WithObjects(ctx context.Context, note func(bytes int)) context.Context {
	return context.WithValue(ctx, objectsKey{}, note)
}

// Object reports the size, in bytes, of an object that was received from an API server.
func Object(ctx context.Context, bytes int) {
	if note, ok := ctx.Value(objectsKey{}).(func(int)); ok {
		note(bytes)
	}
}

type turnsKey struct{}

// Turns calls work, which processes a number of bytes and waits for nothing, when the caller may do so. It returns the error of work, or another
// one without calling it.
type Turns func(ctx context.Context, bytes int, work func() error) error

// WithTurns returns a context whose operations process data in turns.
func WithTurns(ctx context.Context, turns Turns) context.Context {
	return context.WithValue(ctx, turnsKey{}, turns)
}

// Process calls work, which processes a number of bytes and waits for nothing, in a turn if the context has turns.
func Process(ctx context.Context, bytes int, work func() error) error {
	if turns, ok := ctx.Value(turnsKey{}).(Turns); ok {
		return turns(ctx, bytes, work)
	}
	return work()
}

// Processed is Process for work with a result.
func Processed[T any](ctx context.Context, bytes int, work func() (T, error)) (result T, err error) {
	err = Process(ctx, bytes, func() (err error) {
		result, err = work()
		return err
	})
	return result, err
}

// The sizes of the pieces that ReadAll reads.
const (
	firstPiece = 4 << 10
	maxPiece   = 512 << 10
)

// ReadAll reads all of r, and calls take before it takes memory: in total for twice the bytes that it reads, plus a last
// piece of at most 512 KiB that may be partly empty. It takes no memory for data that has not begun to arrive.
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
		if err == io.EOF { // a wrapped EOF is a connection that was closed
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
