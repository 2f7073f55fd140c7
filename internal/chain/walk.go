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

// Getter returns the turn with a response ID, and false if it is not stored. An error ends the walk.
type Getter func(ctx context.Context, id string) (Turn, bool, error)

// WalkOptions are the options of Walk.
type WalkOptions struct {
	// MaxDepth is the number of turns that the chain may have. Zero and less fail every walk.
	MaxDepth int
	// Last is the number of turns after which the walk ends, or 0. The rules do not apply to what is before them: MaxDepth limits only the turns
	// that are walked.
	Last int
	// ContinueIncomplete accepts turns whose status is incomplete: the model was cut off, and is asked to go on. It lifts no other rule
	// than TurnIncomplete.
	ContinueIncomplete bool
	// IncludeIncomplete accepts turns that are not completed, whatever their status is. It lifts no other rule.
	IncludeIncomplete bool
	// IncludeUnreadable accepts turns whose bodies cannot be read, for a caller that needs none. It lifts no other rule than SnapshotUnreadable.
	IncludeUnreadable bool
}

// Walk follows the parents of the turn id to the root, or for WalkOptions.Last turns, and returns the turns, oldest first. For the empty ID it returns
// no turns and no error. It returns an *Error if a rule is broken, the getter's error wrapped if that fails, and the
// context's error once ctx is done.
//
// The rules are checked in their order at each step: depth and cycle before the turn is fetched, the others after. So a
// chain that is both too long and circular, or too long and cut off, is too long.
func Walk(ctx context.Context, id string, get Getter, opts WalkOptions) ([]Turn, error) {
	var turns []Turn
	visited := map[string]bool{}
	for current := id; current != "" && (opts.Last == 0 || len(turns) < opts.Last); {
		s := step{
			maxDepth: opts.MaxDepth, continueIncomplete: opts.ContinueIncomplete, includeIncomplete: opts.IncludeIncomplete,
			includeUnreadable: opts.IncludeUnreadable, passed: len(turns), repeated: visited[current],
		}
		if broken := firstBroken(&s); broken != Resolved {
			return nil, s.fail(broken, current, id)
		}
		visited[current] = true
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		s.fetched = true
		if s.turn, s.found, err = get(ctx, current); err != nil {
			return nil, fmt.Errorf("unable to get response %q: %w", current, err)
		}
		if broken := firstBroken(&s); broken != Resolved {
			return nil, s.fail(broken, current, id)
		}
		turns = append(turns, s.turn)
		current = s.turn.Previous
	}
	slices.Reverse(turns)
	return turns, nil
}

// fail returns the error of a walk from the requested turn that breaks a rule at a response ID.
func (s *step) fail(broken Rule, at, asked string) *Error {
	return &Error{Rule: broken, ResponseID: at, PreviousResponseID: asked, MaxDepth: s.maxDepth, Status: s.turn.Status}
}
