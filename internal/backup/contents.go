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

package backup

import (
	"errors"
	"fmt"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// chains are the chains of the sessions of a file, in its order.
type chains struct {
	// index has the positions of the sessions by name: -1 for those whose name does not belong to their response ID, which are in no
	// chain.
	index map[string]int
	// digests are those of all sessions.
	digests []digest
	// missing are the names of parents that were not in the file before their children.
	missing map[string]bool
}

func newChains() *chains { return &chains{index: map[string]int{}, missing: map[string]bool{}} }

// add sets the parent and the digest of the next session. It returns an error if the session must not come next.
func (c *chains) add(s *Session) error {
	if _, found := c.index[s.Name]; found {
		return errors.New("the session is in the file twice")
	}
	misnamed := s.misnamed()
	if !misnamed && c.missing[s.Name] {
		return errors.New("the session comes after its children")
	}
	s.parent = -1
	if !misnamed && !s.Cycle && s.turn.previous != "" {
		name := v1alpha1.ObjectName(s.turn.previous)
		if parent, found := c.index[name]; found {
			s.parent = parent
		} else {
			c.missing[name] = true
		}
	}
	s.digest = fold(c.digestOf(s.parent), s.turn.content)
	c.index[s.Name] = len(c.digests)
	if misnamed {
		c.index[s.Name] = -1
	}
	c.digests = append(c.digests, s.digest)
	return nil
}

func (c *chains) digestOf(index int) digest {
	if index < 0 {
		return digest{}
	}
	return c.digests[index]
}

// named adds the name of a session to an error.
func named(name string, err error) error { return fmt.Errorf("session %s: %w", name, err) }
