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

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// contents are the objects of a file, in its order.
type contents struct {
	// index has the positions of the objects by kind and name: -1 for those whose name does not belong to their ID, which are nobody's
	// parents.
	index [len(kinds)]map[string]int
	// digests are those of all objects.
	digests []digest
	// missing are the names of sessions that are parents, and were not in the file before their children.
	missing map[string]bool
	// last is the kind of the last object.
	last kind
}

func newContents() *contents {
	c := &contents{missing: map[string]bool{}}
	for kind := range c.index {
		c.index[kind] = map[string]int{}
	}
	return c
}

// add sets the parent and the digest of the next object. It returns an error if the object must not come next.
func (c *contents) add(o *Object) error {
	if err := c.check(o); err != nil {
		return err
	}
	o.parent = -1
	if !o.misnamed() && !o.Cycle && o.parsed.parentID != "" {
		o.parent = c.find(o.kind.parentKind(), o.parsed.parentID)
	}
	if o.parent < 0 && o.kind == summaryKind {
		return errors.New("its conversation is not in the file")
	}
	o.digest = fold(c.digestOf(o.parent), o.parsed.content)
	c.index[o.kind][o.Name] = len(c.digests)
	if o.misnamed() {
		c.index[o.kind][o.Name] = -1
	}
	c.digests = append(c.digests, o.digest)
	c.last = o.kind
	return nil
}

// check returns an error if an object must not come next, whatever its parent is.
func (c *contents) check(o *Object) error {
	noun := kinds[o.kind].noun
	_, found := c.index[o.kind][o.Name]
	switch {
	case found:
		return errors.New("the " + noun + " is in the file twice")
	case o.kind < c.last:
		return errors.New("the " + noun + " comes after a " + kinds[c.last].noun)
	case o.kind == sessionKind && !o.misnamed() && c.missing[o.Name]:
		return errors.New("the session comes after its children")
	case o.kind != sessionKind && o.Cycle:
		return errors.New("only sessions can be on a cycle")
	case o.parsed.deleting:
		return errors.New("the conversation is being deleted")
	}
	return nil
}

// find returns the position of the session or the conversation with an ID, or -1 if it is not in the file.
func (c *contents) find(kind kind, id string) int {
	name := v1alpha1.ObjectName(id)
	position, found := c.index[kind][name]
	if !found {
		if kind == sessionKind {
			c.missing[name] = true
		}
		return -1
	}
	return position
}

func (c *contents) digestOf(index int) digest {
	if index < 0 {
		return digest{}
	}
	return c.digests[index]
}
