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

// Package chain is the core of Catena: it walks a turn's parents to the root, says whether the chain can be resolved
// and where not, keeps those verdicts current for many turns at once, and flattens turns into input items.
//
// It is pure Go: no Kubernetes client, no clock, no I/O. Walk is the definition; Index gives the same answers
// incrementally and is checked against Walk by a property test.
package chain

// DefaultMaxDepth is how many turns a chain may have where nothing else is said.
const DefaultMaxDepth = 64

// The statuses that mean something to a chain, as api/v1alpha1 and package store have them.
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
)

// Turn is what a chain knows of a stored turn.
type Turn struct {
	// ID is the response ID. It is not empty.
	ID string
	// Previous is the response ID of the parent, empty for the first turn of a conversation.
	Previous string
	// Status is the response's status, verbatim.
	Status string
	// Unreadable is set where the turn's snapshot cannot be flattened (see Flatten).
	Unreadable bool
}

func (t Turn) fault() fault {
	switch {
	case t.Status == statusQueued, t.Status == statusInProgress:
		return faultPending
	case t.Status != statusCompleted:
		return faultNotCompleted
	case t.Unreadable:
		return faultUnreadable
	}
	return faultNone
}
