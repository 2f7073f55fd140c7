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
	"context"
	"fmt"
	"slices"
)

// Getter returns the turn with a response ID, and false where there is none. An error ends the walk.
type Getter func(ctx context.Context, id string) (Turn, bool, error)

// WalkOptions are the options of Walk.
type WalkOptions struct {
	// MaxDepth is how many turns the chain may have. Zero and less fail every walk.
	MaxDepth int
	// IncludeIncomplete lets turns pass that are not completed. It lifts no other guard.
	IncludeIncomplete bool
}

// Walk follows the parents of the turn id to the root and returns the turns, oldest first. It returns no turns and no
// error for the empty ID. It returns an *Error where a guard fires, the getter's error wrapped where that fails, and
// the context's error once ctx is done.
//
// The guards run in this order at each step: depth, cycle, fetch, missing, status, collect. So a chain that is both
// too long and circular, or too long and cut off, is too long.
func Walk(ctx context.Context, id string, get Getter, opts WalkOptions) ([]Turn, error) {
	var turns []Turn
	visited := map[string]bool{}
	for current := id; current != ""; {
		if len(turns) >= opts.MaxDepth {
			return nil, &Error{Code: CodeDepthExceeded, ResponseID: current, PreviousResponseID: id, MaxDepth: opts.MaxDepth}
		}
		if visited[current] {
			return nil, &Error{Code: CodeCycleDetected, ResponseID: current, PreviousResponseID: id}
		}
		visited[current] = true
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		turn, found, err := get(ctx, current)
		if err != nil {
			return nil, fmt.Errorf("unable to get response %q: %w", current, err)
		}
		if !found {
			return nil, &Error{Code: CodeNotFound, ResponseID: current, PreviousResponseID: id}
		}
		switch f := turn.fault(); {
		case f.isStatus() && !opts.IncludeIncomplete:
			return nil, &Error{Code: CodeUnavailable, ResponseID: current, PreviousResponseID: id, Status: turn.Status}
		case turn.Unreadable:
			return nil, &Error{Code: CodeUnreadable, ResponseID: current, PreviousResponseID: id}
		}
		turns = append(turns, turn)
		current = turn.Previous
	}
	slices.Reverse(turns)
	return turns, nil
}
