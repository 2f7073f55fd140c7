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

// Package chain is the core of Catena. It walks a turn's parents to the root, reports whether the chain resolves and
// where it is broken, keeps those verdicts current for many turns at once, and flattens turns into input items.
//
// It is pure Go: no Kubernetes client, no clock, no I/O. Rule defines every rule of a chain and its consequences. Walk is
// the definition of a verdict; Index computes the same verdicts incrementally and is checked against Walk by a property test.
package chain

// DefaultMaxDepth is the number of turns that a chain may have unless a limit is given: 64, as in GodeX. The reasons
// are in docs/decisions/depth.md.
const DefaultMaxDepth = 64

// The response statuses that Catena interprets. They mirror the status of OpenAI's Response object; the public packages
// re-export them. A turn with any other status counts as not completed.
const (
	StatusQueued     = "queued"
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusIncomplete = "incomplete"
	StatusFailed     = "failed"
	StatusCancelled  = "cancelled"
)

// Statuses returns the response statuses that Catena interprets.
func Statuses() []string {
	return []string{StatusQueued, StatusInProgress, StatusCompleted, StatusIncomplete, StatusFailed, StatusCancelled}
}

// Turn is a node of a chain: the data of a stored turn that the rules need.
type Turn struct {
	// ID is the response ID. It is not empty.
	ID string
	// Previous is the response ID of the parent, empty for a root.
	Previous string
	// Status is the status of the response, verbatim.
	Status string
	// Unreadable is set if the bodies of the turn cannot be read or flattened (see Flatten).
	Unreadable bool
}

func (t Turn) pending() bool { return t.Status == StatusQueued || t.Status == StatusInProgress }

// broken returns the first rule that the turn breaks by itself, wherever it is in a chain, and Resolved if it breaks none.
func (t Turn) broken(continueIncomplete bool) Rule {
	return firstBroken(&step{maxDepth: 1, continueIncomplete: continueIncomplete, fetched: true, found: true, turn: t})
}
