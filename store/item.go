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

package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/metered"
)

// Item is an item of a history.
type Item struct {
	// ResponseID is the response ID of the turn that the item belongs to.
	ResponseID string
	// Number is the number of the item among those of its turn, as in Origin.
	Number int
	// JSON is the item.
	JSON json.RawMessage
}

// FindItem returns the newest item in the history of a response whose member "id" is the string itemID. The options MaxDepth,
// ContinueIncomplete, IncludeIncomplete and Version have the same meaning as for Resolve; with others, the error is ErrInvalid.
//
// The error is ErrNotFound, with the item's ID in its message, if there is no such item. It is that of Resolve if the history
// does not resolve: if that is because a turn does not exist, Error.PreviousResponseID is the response ID, and otherwise empty. The
// error is ErrUnsupported if the cluster's operator is older than ResolveOptions.Origins.
//
// It costs a Resolve of the newest MaxLimit items and, if the item is not among them, one of the whole history.
func (s *Store) FindItem(ctx context.Context, responseID, itemID string, options ResolveOptions) (*Item, error) {
	item, err := observe(s, "find_item", func() (*Item, error) {
		if applied := findOptions(options); applied != options {
			return nil, &Error{
				Code: CodeInvalid, Message: "invalid options: FindItem only supports MaxDepth, ContinueIncomplete, IncludeIncomplete and Version",
			}
		}
		return s.findItem(ctx, responseID, itemID, options)
	})
	return item, complete(err, fmt.Sprintf("unable to find an item in the history of response %q", responseID), responseID)
}

// findOptions returns the options that apply to FindItem.
func findOptions(o ResolveOptions) ResolveOptions {
	return ResolveOptions{MaxDepth: o.MaxDepth, ContinueIncomplete: o.ContinueIncomplete, IncludeIncomplete: o.IncludeIncomplete, Version: o.Version}
}

// findItem searches for an item in the newest items and then, because each page costs as much as a whole history, in all.
func (s *Store) findItem(ctx context.Context, responseID, itemID string, options ResolveOptions) (*Item, error) {
	options.Origins, options.Instructions, options.Order = true, InstructionsOmit, OrderDescending
	for _, options.Limit = range []int{MaxLimit, 0} {
		history, err := s.resolve(ctx, responseID, options)
		if err != nil {
			return nil, err
		}
		item, err := itemOf(history, itemID)
		if err != nil {
			return nil, err
		}
		if item != nil {
			if err := metered.Take(ctx, int64(len(item.JSON))); err != nil {
				return nil, err
			}
			item.JSON = bytes.Clone(item.JSON) // the history takes more memory
			return item, nil
		}
		if history.Next == "" {
			break
		}
	}
	return nil, &Error{
		Code: CodeNotFound, ResponseID: responseID,
		Message: fmt.Sprintf("the history of response %q has no item with the ID %.*q", responseID, MaxIDLength, itemID),
	}
}

// itemOf returns the first item of a history with an ID, which shares the memory of the history, or nil if there is none.
func itemOf(h *History, itemID string) (*Item, error) {
	next := 0
	for _, origin := range h.Origins {
		for i := range origin.Count {
			if next == len(h.Items) {
				return nil, errOrigins
			}
			if raw := h.Items[next]; hasID(raw, itemID) {
				return &Item{ResponseID: origin.ResponseID, Number: origin.First - i, JSON: raw}, nil
			}
			next++
		}
	}
	if next < len(h.Items) {
		return nil, errOrigins
	}
	return nil, nil
}

// errOrigins indicates that the items of a history have no origins.
var errOrigins = &Error{
	Code: CodeUnsupported, Message: "the store does not return the origins of items: in a cluster, upgrade the operator to the version of this program",
}

// hasID reports whether an item has an ID. It decodes nothing but the ID, and that only if it has escapes.
func hasID(item json.RawMessage, itemID string) bool {
	raw := jsonvalue.ValidObject(item).RawMembers("id")[0]
	const quotes, longestEscape = 2, 6 // \u0061
	if !jsonvalue.IsString(raw) || len(raw) < len(itemID)+quotes || len(raw) > longestEscape*len(itemID)+quotes {
		return false
	}
	return itemID != "" && jsonvalue.Unquote(raw) == itemID
}
