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

package controllers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// deletion is the deletion of a snapshot. It consists of steps, so that namespaces can take turns: the parts of a snapshot, and the sessions
// that they name, are as many as a tenant likes.
//
// Its steps first read the sessions, and then delete the parts in their order. The last session is read by the step that deletes the first
// part, so that no other request comes between them. If the sweep ends in between, garbage collection deletes the other parts, and those that
// have lost their owner are marked again.
type deletion struct {
	parts []snapshot.Part
	// sessions has the index of one part for each session that the parts name.
	sessions []int
	// kept is set once the remaining parts must be kept: a session refers to the snapshot, or a step has failed.
	kept bool
}

// deletionStep is a step of a deletion.
type deletionStep struct {
	*deletion
	index int
}

func (d deletionStep) namespace() string { return d.parts[0].Session.Namespace }

// deletionSteps yields the steps that delete snapshots.
func deletionSteps(due [][]snapshot.Part) iter.Seq[deletionStep] {
	return func(yield func(deletionStep) bool) {
		for _, parts := range due {
			d := newDeletion(parts)
			for i := range len(d.sessions) - 1 + len(parts) {
				if !yield(deletionStep{d, i}) {
					return
				}
			}
		}
	}
}

func newDeletion(parts []snapshot.Part) *deletion {
	d, named := &deletion{parts: parts}, map[types.NamespacedName]bool{}
	for i, part := range parts {
		if !named[part.Session] {
			named[part.Session] = true
			d.sessions = append(d.sessions, i)
		}
	}
	return d
}

// collect executes a step of a deletion. It does nothing if a session refers to the snapshot according to a live read, or has done so
// since the sweep began, or if an earlier step has failed.
func (s *SnapshotSweeper) collect(ctx context.Context, store snapshot.Store, plan sweepPlan, d deletionStep) error {
	if d.kept {
		return nil
	}
	if d.index < len(d.sessions) {
		referred, err := s.refers(ctx, d.parts[d.sessions[d.index]])
		isLast := d.index == len(d.sessions)-1
		if d.kept = err != nil || referred || isLast && slices.ContainsFunc(d.parts, plan.outdated); d.kept {
			return err
		}
	}
	if next := d.index - (len(d.sessions) - 1); next >= 0 {
		return s.deletePart(ctx, store, d.deletion, next)
	}
	return nil
}

// deletePart deletes a part of a snapshot, unless it has changed: then the next sweep decides.
func (s *SnapshotSweeper) deletePart(ctx context.Context, store snapshot.Store, d *deletion, index int) error {
	part := d.parts[index]
	err := store.Delete(ctx, part)
	switch {
	case errors.Is(err, snapshot.ErrChanged):
		d.kept = true
	case err != nil:
		d.kept = true
		return fmt.Errorf("unable to delete an unreferenced snapshot of session %s/%s: %w", part.Session.Namespace, logged(part.Session.Name), err)
	case index == len(d.parts)-1:
		first := d.parts[0]
		log.FromContext(ctx).Info("Deleted a snapshot that no session refers to",
			"namespace", first.Session.Namespace, "name", logged(first.Session.Name), "key", first.Key)
	}
	return nil
}

// logged returns the name of a session for the log. The annotation that it comes from can have any text.
func logged(name string) string {
	if !isName(name) {
		return "(invalid)"
	}
	return name
}

// isName reports whether an object can have a name.
func isName(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }

// refers reports whether the session named by a part refers to its snapshot.
func (s *SnapshotSweeper) refers(ctx context.Context, part snapshot.Part) (bool, error) {
	if !isName(part.Session.Name) {
		return false, nil
	}
	raw, err := kubeclient.GetRaw(ctx, s.Client, kubeclient.Sessions, part.Session)
	if kubeclient.IsGone(err, kubeclient.Sessions, part.Session.Name) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("unable to read session %s: %w", part.Session, err)
	}
	return gjson.GetBytes(raw, "spec.snapshot.key").String() == part.Key, nil
}
