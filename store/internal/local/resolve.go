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

package local

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store/driver"
)

// Getter returns the turn with a response ID, or nil if it does not exist. It is called for the requested turn first, and then
// for the parent of the turn it returned last. All turns that it returns belong to one state of the store. Without
// ResolveOptions.Bodies, only their UID, parent, status, request and response are read. The bodies are only read until the next call.
type Getter func(ctx context.Context, responseID string) (*Session, error)

// Resolve returns the history of a turn, as driver.Store.Resolve does. A maxDepth of 0 means driver.DefaultMaxDepth, and
// larger values than driver.MaxDepthLimit mean that limit.
func Resolve(ctx context.Context, responseID string, options driver.ResolveOptions, maxDepth int, get Getter) (*driver.History, error) {
	if maxDepth == 0 {
		maxDepth = driver.DefaultMaxDepth
	}
	maxDepth = options.Depth(min(maxDepth, driver.MaxDepthLimit))
	w := walk{get: get, bodies: options.Bodies, items: map[string]*chain.Items{}}
	turns, err := chain.Walk(ctx, responseID, w.turn, chain.WalkOptions{
		MaxDepth: maxDepth, Last: options.Last, ContinueIncomplete: options.ContinueIncomplete, IncludeIncomplete: options.IncludeIncomplete,
	})
	if err != nil {
		return nil, chainError(err)
	}
	if options.Digests {
		if err := metered.Take(ctx, int64(len(turns))*digestBytes); err != nil {
			return nil, err
		}
	}
	return w.history(responseID, turns, options)
}

// digestBytes is the memory of a digest in a history.
const digestBytes = 96

// walk is the state of one call of Resolve.
type walk struct {
	get      Getter
	bodies   bool
	items    map[string]*chain.Items // by response ID
	sessions []*driver.Session       // newest first, if bodies is set
	uid      string                  // of the requested turn
}

func (w *walk) turn(ctx context.Context, id string) (chain.Turn, bool, error) {
	stored, err := w.get(ctx, id)
	if err != nil || stored == nil {
		return chain.Turn{}, false, err
	}
	if len(w.items) == 0 {
		w.uid = stored.UID
	}
	if err := metered.Take(ctx, int64(len(stored.Request)+len(stored.Response))); err != nil {
		return chain.Turn{}, false, err
	}
	if err := w.keep(ctx, stored); err != nil {
		return chain.Turn{}, false, err
	}
	var items *chain.Items
	var unreadable error
	err = metered.Process(ctx, len(stored.Request)+len(stored.Response), func() error {
		items, unreadable = chain.Flatten(stored.Request, stored.Response)
		return nil
	})
	if err == nil && unreadable == nil {
		err = metered.Take(ctx, int64(items.Len())*itemBytes)
	}
	if err != nil {
		return chain.Turn{}, false, err
	}
	w.items[id] = items
	return chain.Turn{ID: id, Previous: stored.PreviousResponseID, Status: stored.Status, Unreadable: unreadable != nil}, true, nil
}

// keep adds a copy of a turn to the sessions if the bodies are requested.
func (w *walk) keep(ctx context.Context, turn *Session) error {
	if !w.bodies {
		return nil
	}
	if err := metered.Take(ctx, int64(len(turn.Request)+len(turn.Response)+len(turn.Metadata))); err != nil {
		return err
	}
	w.sessions = append(w.sessions, turn.Clone())
	return nil
}

// itemBytes is the memory overhead of an item: its offset in chain.Items and its element in the history.
const itemBytes = 8 + 24

func (w *walk) history(responseID string, turns []chain.Turn, options driver.ResolveOptions) (*driver.History, error) {
	slices.Reverse(w.sessions)
	h := &driver.History{Turns: make([]string, len(turns)), Sessions: w.sessions}
	items := make([]history.TurnItems, len(turns))
	for i, turn := range turns {
		h.Turns[i] = turn.ID
		items[i] = history.TurnItems{ResponseID: turn.ID, Items: w.items[turn.ID]}
	}
	page, err := history.New(w.uid, items, options)
	if err != nil {
		return nil, invalidCursor(responseID, err)
	}
	if len(turns) > 0 {
		h.PreviousResponseID = turns[0].Previous
		h.Parent = driver.Handle{ResponseID: responseID, UID: w.uid}
	}
	h.Next, h.Origins, h.Digests = page.Next(), page.Origins(), page.Digests()
	h.Items = make([]json.RawMessage, 0, page.Len())
	for item := range page.Entries() {
		h.Items = append(h.Items, slices.Clip(item)) // the items share a buffer, which an append must not write to
	}
	return h, nil
}

func invalidCursor(responseID string, err error) error {
	return &driver.Error{Code: driver.CodeInvalid, ResponseID: responseID, Message: "invalid cursor", Err: err}
}

// chainError converts the error of a walk.
func chainError(err error) error {
	e, ok := errors.AsType[*chain.Error](err)
	if !ok {
		return err
	}
	return &driver.Error{
		Code: driver.Code(e.Code()), ResponseID: e.ResponseID, PreviousResponseID: e.PreviousResponseID, Message: e.Error(),
		Retryable: e.Rule.Retryable(),
	}
}
