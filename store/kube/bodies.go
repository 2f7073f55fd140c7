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

package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

// turnsAtOnce is how many turns of a chain are read at once.
const turnsAtOnce = 8

// resolveBodies returns a history with its turns. The operator resolves the chain, but returns only items, so the turns are then read, and
// the history is made from what was read: if a turn has changed in between, the items are those of its bodies, or the chain is broken.
func (c *cluster) resolveBodies(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	page, err := c.resolveItems(ctx, namespace, responseID, driver.ResolveOptions{
		MaxDepth: options.MaxDepth, Last: options.Last, ContinueIncomplete: options.ContinueIncomplete, IncludeIncomplete: options.IncludeIncomplete, Version: options.Version,
		Limit: 1, Order: driver.OrderDescending, Instructions: driver.InstructionsOmit, // the last item is often a small one
	})
	if err != nil {
		return nil, err
	}
	turns, err := c.readTurns(ctx, namespace, page.Turns)
	if err != nil {
		return nil, err
	}
	options.Bodies = false // the turns need not be copied
	// The operator has applied its own limit if the options have none.
	history, err := local.Resolve(ctx, responseID, options, driver.MaxDepthLimit, func(_ context.Context, id string) (*local.Session, error) {
		turn, found := turns[id]
		switch {
		case !found:
			return nil, changed(id)
		case turn.unreadable != nil:
			e := &chain.Error{Rule: chain.SnapshotUnreadable, ResponseID: id, PreviousResponseID: responseID}
			if cause := errors.Unwrap(turn.unreadable); cause != nil {
				e.Problem = cause.Error()
			}
			return nil, e
		}
		return turn.stored, nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range history.Turns {
		history.Sessions = append(history.Sessions, turns[id].stored.Session)
	}
	return history, nil
}

// changed returns the error for a turn that has got another parent since the operator resolved the chain: it was deleted and saved again.
func changed(previous string) error {
	return driver.Again(&driver.Error{
		Code: driver.CodeUnreachable, ResponseID: previous, Retryable: true,
		Message: fmt.Sprintf("the chain has changed while its turns were read, and continues at response %q", previous),
	})
}

// turn is the result of reading a turn. Without an error, stored is nil if it does not exist.
type turn struct {
	stored     *local.Session
	unreadable error
}

// readTurns reads turns, and returns them by response ID.
func (c *cluster) readTurns(ctx context.Context, namespace string, ids []string) (map[string]turn, error) {
	var mu sync.Mutex
	turns := make(map[string]turn, len(ids))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(turnsAtOnce)
	for _, id := range ids {
		group.Go(func() error {
			read, err := c.readTurn(ctx, namespace, id)
			mu.Lock()
			defer mu.Unlock()
			turns[id] = read
			return err
		})
	}
	return turns, group.Wait()
}

// readTurn reads a turn. It retries by itself, because a retry of the whole call would read all turns again.
func (c *cluster) readTurn(ctx context.Context, namespace, id string) (turn, error) {
	stored, err := driver.Retry(ctx, func() (*local.Session, error) {
		stored, err := c.read(ctx, namespace, id)
		return stored, again(err)
	})
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return turn{}, nil
	case errors.Is(err, driver.ErrUnreadable):
		return turn{unreadable: err}, nil
	}
	return turn{stored: stored}, err
}
