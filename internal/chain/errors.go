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

import "fmt"

// Code is the machine-readable code of an error, as it goes over the wire.
type Code string

const (
	// CodeNotFound: the turn asked for, or one of its ancestors, does not exist.
	CodeNotFound Code = "session.chain.not_found"
	// CodeCycleDetected: the parents lead back to a turn that was already passed.
	CodeCycleDetected Code = "session.chain.cycle_detected"
	// CodeDepthExceeded: the chain has more turns than allowed.
	CodeDepthExceeded Code = "session.chain.depth_exceeded"
	// CodeUnavailable: a turn of the chain is not completed.
	CodeUnavailable Code = "session.chain.unavailable"
	// CodeUnreadable: a turn's snapshot cannot be turned into input items.
	CodeUnreadable Code = "session.snapshot.unreadable"
)

// Error says why a chain cannot be resolved.
type Error struct {
	Code Code
	// ResponseID is the response ID at which the walk failed.
	ResponseID string
	// PreviousResponseID is the response ID that was asked for.
	PreviousResponseID string
	// MaxDepth is the limit that was passed; only set with CodeDepthExceeded.
	MaxDepth int
	// Status is the status of the turn that is not completed; only set with CodeUnavailable.
	Status string
}

// Error returns one sentence that names the response ID and what is wrong with it.
func (e *Error) Error() string {
	switch e.Code {
	case CodeNotFound:
		if e.ResponseID == e.PreviousResponseID {
			return fmt.Sprintf("response %q was not found", e.ResponseID)
		}
		return fmt.Sprintf("response %q, an ancestor of %q, was not found", e.ResponseID, e.PreviousResponseID)
	case CodeCycleDetected:
		return fmt.Sprintf("the chain of response %q contains a cycle: it leads back to %q", e.PreviousResponseID, e.ResponseID)
	case CodeDepthExceeded:
		return fmt.Sprintf("the chain of response %q has more than %d turns: %q is beyond the limit", e.PreviousResponseID, e.MaxDepth, e.ResponseID)
	case CodeUnavailable:
		return fmt.Sprintf("response %q is %q, not completed, and cannot be used as context", e.ResponseID, e.Status)
	case CodeUnreadable:
		return fmt.Sprintf("the snapshot of response %q cannot be turned into input items", e.ResponseID)
	}
	return fmt.Sprintf("%s at response %q", e.Code, e.ResponseID)
}
