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

package driver

import "fmt"

// Decision is the outcome of Decide: the action of a save.
type Decision string

// The decisions of Decide.
const (
	// Create stores a turn with a new response ID.
	Create Decision = "create"
	// Replace stores the turn in place of the stored one.
	Replace Decision = "replace"
	// Keep writes nothing: the same turn is already stored.
	Keep Decision = "keep"
)

// Stored describes the turn that is stored under the response ID of a session to save.
type Stored struct {
	// PreviousResponseID and Immutable are those of the stored turn.
	PreviousResponseID string
	Immutable          bool
	// SameContent reports whether the stored turn and the session have the same content, as Session.SameContent defines it.
	SameContent bool
}

// Decide returns the decision of a save. Pass a nil stored turn if nothing is stored under the response ID. Set changed if
// the turn was created, overwritten or deleted after the caller read Session.Version, or after an earlier attempt of the
// same save. Every error is an ErrConflict, or ErrNotFound with SaveOptions.Existing.
func Decide(stored *Stored, changed bool, session *Session, options SaveOptions) (Decision, error) {
	id := session.ResponseID
	switch {
	case stored == nil && options.Existing:
		return "", NotFound(id)
	case stored == nil && options.Overwrite && changed:
		return "", Conflict(id, "response %q no longer exists: it was deleted since it was read", id)
	case stored == nil:
		return Create, nil
	case stored.SameContent:
		return Keep, nil
	case !options.Overwrite:
		return "", Conflict(id, "response %q is already stored with different content", id)
	case stored.Immutable:
		return "", Conflict(id, "response %q is immutable and cannot be overwritten", id)
	case stored.PreviousResponseID != session.PreviousResponseID:
		return "", Conflict(id, "the previous response ID of %q is %q and cannot be changed to %q",
			id, stored.PreviousResponseID, session.PreviousResponseID)
	case changed:
		return "", Overwritten(id)
	}
	return Replace, nil
}

// Overwritten returns the conflict for a save of a turn that was overwritten since it was read.
func Overwritten(responseID string) *Error {
	return Conflict(responseID, "response %q was overwritten since it was read", responseID)
}

// Conflict returns an error with CodeConflict.
func Conflict(responseID, format string, args ...any) *Error {
	return &Error{Code: CodeConflict, ResponseID: responseID, Message: fmt.Sprintf(format, args...)}
}
