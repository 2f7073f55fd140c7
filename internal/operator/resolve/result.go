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

// Package resolve finds the whole history of a turn: it walks the chain in the watched view of the sessions, confirms errors
// with live reads, and reads the turns' items through a bounded cache.
package resolve

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// Result is the answer to a resolve: the turns of a history. It is shared with a cache and must not be changed.
type Result struct {
	// Name and UID identify the requested ResponseSession.
	Name string
	UID  types.UID
	// ResponseID is its response ID.
	ResponseID string
	// Revision is that of its chain.
	Revision Revision
	// Conversation is the conversation whose history this is, or nil if a turn was requested. Without turns, only it and the Revision are set.
	Conversation *Conversation
	// Unchanged is set if Query.Unchanged returned true. There are no Turns then.
	Unchanged bool
	// Path has the sessions of the chain, or of its last turns, oldest first.
	Path []*sessions.Record
	// Turns are their turns.
	Turns []history.TurnItems

	holding *holding // nil for a result that is not counted
	done    func()   // ends the query, nil for a result that is not counted
}

// PreviousResponseID returns the parent of the first turn, which is empty unless Query.Last has left turns out.
func (r *Result) PreviousResponseID() string {
	if len(r.Path) == 0 {
		return ""
	}
	return r.Path[0].Turn.Previous
}

// Reserve counts bytes in addition to the items, until Release. It returns ErrTooLarge if the result alone then has more
// than a namespace can hold, and ErrBusy if that exceeds the share of the namespace, or if the result was released.
func (r *Result) Reserve(bytes int64) error {
	if r.holding == nil {
		return nil
	}
	return r.holding.reserve(bytes)
}

// Release returns the memory that is counted for the result. It may be called more than once.
func (r *Result) Release() {
	if r.holding != nil {
		r.holding.release()
	}
	if r.done != nil {
		r.done()
	}
}
