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

// Package localstore is what the stores that need no cluster have in common: what a save may do to the turn that is
// stored, and the history that stored turns make.
package localstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/catena-dev/catena/store"
)

// Turn is a stored turn. It is never changed, only replaced.
type Turn struct {
	*store.Session
	// UID is new for every turn, and stays when one is overwritten.
	UID string
}

// Prepare returns the session to store, which shares nothing with the caller's, or why it must not be stored. Every Save
// begins with it.
func Prepare(ctx context.Context, session *store.Session, options store.SaveOptions) (*store.Session, error) {
	if err := session.Validate(); err != nil {
		return nil, err
	}
	if err := options.CheckExpected(session); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("unable to save response %q: %w", session.ResponseID, err)
	}
	next := session.Clone()
	for _, at := range []*time.Time{&next.CreatedAt, &next.CompletedAt} {
		*at = at.UTC().Truncate(time.Second)
	}
	return next, nil
}

// Decide returns the turn that replaces the current one, nil where there is none, when a prepared session is saved. It
// is the current one itself where that has the same content already, and otherwise has a new version.
func Decide(current *Turn, next *store.Session, options store.SaveOptions) (*Turn, error) {
	expected := next.Version
	if current == nil {
		if options.Overwrite && expected != "" {
			return nil, conflict(next, "response %q is no longer there: it was deleted since it was read", next.ResponseID)
		}
		next.Version = rand.Text()
		return &Turn{Session: next, UID: rand.Text()}, nil
	}
	switch {
	case current.SameContent(next):
		return current, nil
	case !options.Overwrite:
		return nil, conflict(next, "response %q is already stored, with other content", next.ResponseID)
	case current.Immutable:
		return nil, conflict(next, "response %q is immutable and cannot be overwritten", next.ResponseID)
	case current.PreviousResponseID != next.PreviousResponseID:
		return nil, conflict(next, "the previous response ID of %q is %q and cannot be changed to %q",
			next.ResponseID, current.PreviousResponseID, next.PreviousResponseID)
	case expected != "" && expected != current.Version:
		return nil, conflict(next, "response %q was overwritten since it was read", next.ResponseID)
	}
	next.Version = rand.Text()
	return &Turn{Session: next, UID: current.UID}, nil
}

func conflict(s *store.Session, format string, args ...any) error {
	return &store.Error{
		Code: store.CodeConflict, ResponseID: s.ResponseID, Message: fmt.Sprintf(format, args...),
	}
}

// NotFound returns the error of Store.Get where there is no turn.
func NotFound(responseID string) error {
	return &store.Error{
		Code: store.CodeNotFound, ResponseID: responseID, Message: fmt.Sprintf("response %q was not found", responseID),
	}
}
