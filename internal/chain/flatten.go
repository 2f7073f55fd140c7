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

package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// Items are the input items that one turn contributes to a history, as raw JSON.
type Items struct {
	// Instructions is the system message made from the request's instructions, nil if there are none.
	Instructions []byte
	// List has the items of the request's input, then those of the response's output, each byte for byte as in the body,
	// separated by commas.
	List []byte
	// Ends has the offset in List at which each item ends.
	Ends []int
	// Figures are those of the turn.
	Figures Figures

	digest digest
}

// Len returns the number of items in List.
func (t *Items) Len() int { return len(t.Ends) }

// Slice returns the items in the half-open range [from, to), separated by commas.
func (t *Items) Slice(from, to int) []byte {
	if from >= to {
		return nil
	}
	start := 0
	if from > 0 {
		start = t.Ends[from-1] + 1
	}
	return t.List[start:t.Ends[to-1]]
}

// Size returns the memory that the items and their digest take in bytes, except for a few bytes of bookkeeping. It never changes.
func (t *Items) Size() int {
	return len(t.Instructions) + cap(t.List) + 8*cap(t.Ends) + len(t.Figures.Model) + digestBytes
}

// Flatten turns the bodies of a turn, each a JSON object of the Responses API or empty, into input items: non-empty
// instructions become a system message, an input string becomes one user message, an input list and the output become their
// items. Items of any type are passed through unparsed and unchanged.
//
// It returns an error if a body is not a JSON object, the instructions are not a string, the input is neither a string nor
// a list of objects, the output is not a list of objects, or there are more than MaxItems items. Null is the same as absent.
func Flatten(request, response []byte) (*Items, error) {
	in, out, err := parse(request, response)
	if err != nil {
		return nil, err
	}
	return FlattenObjects(in, out)
}

// Check returns the error of Flatten without making the list of the items, and ErrTooManyItems if there are more than maxItems.
func Check(request, response []byte, maxItems int) error {
	in, out, err := parse(request, response)
	if err != nil {
		return err
	}
	n := 0
	_, err = partsOf(in, out).eachItem(func(...string) error {
		if n++; n > maxItems {
			return ErrTooManyItems
		}
		return nil
	})
	return err
}

// MaxItems (1,048,576) is the maximum number of items of a turn. The smallest one has two bytes as JSON, and takes ten times as much memory: with 60
// MiB of them, the histories of one namespace would take that of others.
const MaxItems = 1 << 20

// ErrTooManyItems indicates that a turn has more items than MaxItems, or than the caller accepts.
var ErrTooManyItems = errors.New("the turn has too many items")

func parse(request, response []byte) (in, out jsonvalue.Object, err error) {
	if in, err = jsonvalue.ParseObject(request); err != nil {
		return in, out, fmt.Errorf("unable to read the request: %w", err)
	}
	if out, err = jsonvalue.ParseObject(response); err != nil {
		return in, out, fmt.Errorf("unable to read the response: %w", err)
	}
	return in, out, nil
}

// FlattenObjects is Flatten for snapshots that have been parsed.
func FlattenObjects(request, response jsonvalue.Object) (*Items, error) {
	parts := partsOf(request, response)
	const wrapped = 100 // more than a message has besides its text
	items := &Items{List: make([]byte, 0, len(parts.input)+wrapped+len(parts.output)), Figures: parts.figures()}
	instructions, err := parts.eachItem(items.add)
	if err != nil {
		return nil, err
	}
	if len(instructions) > 0 {
		items.Instructions = appendPieces(make([]byte, 0, wrapped+len(parts.instructions)), instructions...)
	}
	items.List, items.Ends = compact(items.List), compact(items.Ends)
	return items, nil
}

// compact returns a slice that takes at most an eighth more memory than it needs.
func compact[E any](s []E) []E {
	if cap(s)-len(s) <= len(s)/8 {
		return s
	}
	return slices.Clone(s)
}

// CheckObjects returns the error of FlattenObjects without making the list of the items.
func CheckObjects(request, response jsonvalue.Object) error {
	_, err := partsOf(request, response).eachItem(func(...string) error { return nil })
	return err
}

// parts are the raw members of the bodies that become items or figures.
type parts struct{ instructions, input, requestModel, output, responseModel, usage string }

func partsOf(request, response jsonvalue.Object) parts {
	in, out := request.RawMembers("instructions", "input", "model"), response.RawMembers("output", "model", "usage")
	return parts{in[0], in[1], in[2], out[0], out[1], out[2]}
}

// eachItem yields the items of the request's input, then those of the response's output, in pieces. It returns the instructions as a
// system message, or nothing if the request has none.
func (p parts) eachItem(yield func(item ...string) error) (instructions []string, err error) {
	switch {
	case jsonvalue.IsNull(p.instructions):
	case jsonvalue.IsString(p.instructions):
		instructions = message("system", p.instructions)
	default:
		return nil, errors.New("unable to read `instructions` of the request: must be a string")
	}
	n := 0
	counted := func(item ...string) error {
		if n++; n > MaxItems {
			return ErrTooManyItems
		}
		return yield(item...)
	}
	if err := eachInput(p.input, counted); err != nil {
		return nil, unlessTooMany(err, "unable to read `input` of the request: must be a string or a list of objects")
	}
	if err := eachOf(p.output, counted); err != nil {
		return nil, unlessTooMany(err, "unable to read `output` of the response: must be a list of objects")
	}
	return instructions, nil
}

// unlessTooMany adds a message to an error about the form of a list.
func unlessTooMany(err error, message string) error {
	if errors.Is(err, ErrTooManyItems) {
		return err
	}
	return fmt.Errorf("%s: %w", message, err)
}

// EachInput yields the items of a request's input, raw JSON or empty: a string is one user message. It returns an error if it
// is neither a string nor a list of objects.
func EachInput(input string, yield func(item string)) error {
	return eachInput(input, func(item ...string) error {
		yield(strings.Join(item, ""))
		return nil
	})
}

func eachInput(input string, yield func(item ...string) error) error {
	if !jsonvalue.IsString(input) {
		return eachOf(input, yield)
	}
	if item := message("user", input); len(item) > 0 {
		return yield(item...)
	}
	return nil
}

// message returns the pieces of a message item with a raw text, which keeps its escapes, and none if the text is empty.
func message(role, text string) []string {
	if text == `""` {
		return nil
	}
	return []string{`{"type":"message","role":"`, role, `","content":[{"type":"input_text","text":`, text, `}]}`}
}

func eachOf(list string, yield func(item ...string) error) error {
	if jsonvalue.IsNull(list) {
		return nil
	}
	if !jsonvalue.IsList(list) {
		return errors.New("must be a list")
	}
	i, pieces := 0, make([]string, 1)
	for _, item := range jsonvalue.Elements(list) {
		if !jsonvalue.IsObject(item) {
			return fmt.Errorf("item %d must be an object", i)
		}
		pieces[0] = item
		if err := yield(pieces...); err != nil {
			return err
		}
		i++
	}
	return nil
}

// maxCopy is how many bytes are copied at once. A copy cannot be preempted, and a garbage collection stops the program until it ends: for
// 60 MiB, this takes 50 ms.
const maxCopy = 1 << 20

func (t *Items) add(item ...string) error {
	if len(t.List) > 0 {
		t.List = append(t.List, ',')
	}
	t.List = appendPieces(t.List, item...)
	t.Ends = append(t.Ends, len(t.List))
	return nil
}

func appendPieces(to []byte, pieces ...string) []byte {
	for _, piece := range pieces {
		for ; len(piece) > maxCopy; piece = piece[maxCopy:] {
			to = append(to, piece[:maxCopy]...)
		}
		to = append(to, piece...)
	}
	return to
}
