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

// Package local contains the code that the drivers without a cluster share: which turn a save stores, and the history of
// stored turns.
package local

import (
	"crypto/rand"
	"time"

	"github.com/catena-dev/catena/store/driver"
)

// Session is a stored session. It is immutable: a write replaces it.
type Session struct {
	*driver.Session
	// UID is unique to a session, and is kept when it is overwritten.
	UID string
	// StoredAt is when a turn was first stored, to the second.
	StoredAt time.Time
}

// Save returns what to store for a session in place of the current one, which is nil if it is new. It returns the
// current one if that has the same content. Otherwise the result has a new version and shares the session's bodies.
func Save(current *Session, session *driver.Session, options driver.SaveOptions) (*Session, error) {
	var stored *driver.Stored
	if current != nil {
		stored = &driver.Stored{
			PreviousResponseID: current.PreviousResponseID,
			Immutable:          current.Immutable,
			SameContent:        current.SameContent(session),
		}
	}
	changed := session.Version != "" && (current == nil || current.Version != session.Version)
	decision, err := driver.Decide(stored, changed, session, options)
	if err != nil {
		return nil, err
	}
	if decision == driver.Keep {
		return current, nil
	}
	next := *session
	next.Version = rand.Text()
	if decision == driver.Replace {
		return &Session{Session: &next, UID: current.UID, StoredAt: current.StoredAt}, nil
	}
	return &Session{Session: &next, UID: rand.Text(), StoredAt: time.Now().UTC().Truncate(time.Second)}, nil
}
