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
	"cmp"
	"context"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// history is how the history of an object is stored, compared with the file. A history is no better than that of the parent.
type history uint8

const (
	unknown history = iota
	// whole: all its turns are stored as they were exported, up to the root and with their bodies.
	whole
	// broken: it was no whole history when it was exported, and is stored like that.
	broken
	// wrong: a turn of it is not stored as it was exported.
	wrong
)

// verify compares what is stored with the file, and reports each object that is not as it was exported. In a dry run, nothing is stored yet.
func (i *importer) verify(ctx context.Context) error {
	step, end := i.Progress("verify", len(i.entries))
	defer end()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(i.Concurrency)
	for _, e := range i.entries {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error {
			defer step()
			if !e.outcome.stored() {
				return nil
			}
			problem, err := retry(groupCtx, func() (string, error) { return i.problemOf(groupCtx, e) })
			if e.same = problem == "" && err == nil; problem != "" {
				i.Problem(label(e.kind, e.name), problem)
			}
			return err
		})
	}
	if err := cmp.Or(group.Wait(), ctx.Err()); err != nil {
		return err
	}
	i.judge()
	return nil
}

// problemOf returns why an object is not stored as it was exported, or an empty string if it is.
func (i *importer) problemOf(ctx context.Context, e *entry) (string, error) {
	if !i.dryRun {
		if problem, err := i.compareStored(ctx, e); problem != "" || err != nil {
			return problem, err
		}
	}
	if !e.orphan() {
		return "", nil
	}
	parent, err := i.stored(ctx, sessionKind, v1alpha1.ObjectName(e.parentID))
	if err != nil || parent == nil || parent.id != e.parentID {
		return "", err
	}
	missing := [...]string{sessionKind: "parent", conversationKind: "last turn"}[e.kind]
	return "was exported without its " + missing + ", which exists in this namespace: its history is another one here", nil
}

// compareStored compares a stored object, and the bodies outside it, with those of the file.
func (i *importer) compareStored(ctx context.Context, e *entry) (problem string, err error) {
	p, err := i.stored(ctx, e.kind, e.name)
	switch {
	case err != nil:
		return "", err
	case p == nil:
		return "is gone: it was deleted while the import was running", nil
	case p.content != e.content:
		return "is not stored as it was exported: it was overwritten while the import was running", nil
	case p.ref == nil || e.withoutBodies:
		return "", nil
	}
	release, err := i.take(ctx, p.ref.SizeBytes)
	if err != nil {
		return "", err
	}
	defer release()
	_, problem, err = i.read(ctx, types.NamespacedName{Namespace: i.namespace, Name: e.name}, p.ref)
	return problem, err
}

// stored returns what the spec of an object says. It returns nil if the object does not exist, or is being deleted: then it belongs to no
// history.
func (i *importer) stored(ctx context.Context, kind kind, name string) (*parsed, error) {
	o, err := i.object(ctx, kind, types.NamespacedName{Namespace: i.namespace, Name: name})
	if err != nil || o == nil || o.deleting {
		return nil, err
	}
	if err := o.parse(i.MaxTurnBytes); err != nil {
		return nil, o.named(err)
	}
	return o.parsed, nil
}

// judge sets the histories of all entries. Parents come first, except on a cycle.
func (i *importer) judge() {
	for _, e := range i.entries {
		switch {
		case e.cycle:
			i.judgeCycle(e)
		case e.parent >= 0:
			e.history = max(e.alone(), i.entries[e.parent].history)
		default:
			e.history = e.alone()
		}
	}
}

// judgeCycle sets the history of all entries of a cycle: a wrong one is in the history of each.
func (i *importer) judgeCycle(first *entry) {
	var members []*entry
	worst := broken
	for e := first; e != nil && e.cycle && e.history == unknown; e = i.entryOf(e.parentID) {
		e.history = e.alone()
		members, worst = append(members, e), max(worst, e.history)
	}
	for _, e := range members {
		e.history = worst
	}
}

// entryOf returns the entry with a response ID, or nil.
func (i *importer) entryOf(responseID string) *entry {
	if index := i.reader.contents.find(sessionKind, responseID); index >= 0 {
		return i.entries[index]
	}
	return nil
}
