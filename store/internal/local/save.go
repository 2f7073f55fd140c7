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

// Package local is what the drivers that need no cluster have in common: which turn a save stores, and the history of
// stored turns.
package local

import (
	"crypto/rand"

	"github.com/catena-dev/catena/store/driver"
)

// Turn is a stored turn. It is never changed, only replaced.
type Turn struct {
	*driver.Session
	// UID is new for every turn, and stays when one is overwritten.
	UID string
}

// Save returns the turn to store in place of the current one, nil if there is none, when a session is saved. It is the
// current turn if that has the same content, and otherwise has a new version and shares the session's bodies.
func Save(current *Turn, session *driver.Session, options driver.SaveOptions) (*Turn, error) {
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
	uid := rand.Text()
	if decision == driver.Replace {
		uid = current.UID
	}
	return &Turn{Session: &next, UID: uid}, nil
}
