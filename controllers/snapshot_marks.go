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
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/internal/snapshot"
)

// mark marks and unmarks the parts of a plan. Parts that cannot be marked because of their owners are logged and are not errors: otherwise
// every sweep would fail because of a tenant, and hide other failures. mark reports whether it left some parts to the next sweep.
//
// It first unmarks, because a save may wait for that.
//
// The time is read just before each mark: if the leader was suspended since it listed a part, another one may have found a session that
// refers to it, and the grace period must not count from before.
func (s *SnapshotSweeper) mark(ctx context.Context, store snapshot.Store, plan sweepPlan) (left bool, err error) {
	rejected := map[string]int{} // by namespace
	mark := func(part snapshot.Part, since time.Time) error {
		err := store.Mark(ctx, part, since)
		switch {
		case errors.Is(err, snapshot.ErrChanged):
			return nil // the next sweep decides
		case errors.Is(err, snapshot.ErrRejected):
			rejected[part.Session.Namespace]++
			return nil
		}
		return err
	}
	left, err = each(inTurns(slices.Values(plan.unmark), namespaceOfPart), s.phase(), func(part snapshot.Part) error {
		return mark(part, time.Time{})
	})
	unmarked, failed := each(inTurns(slices.Values(plan.mark), namespaceOfPart), s.phase(), func(part snapshot.Part) error {
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		return mark(part, now)
	})
	if len(rejected) > 0 {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(rejected)), func(a, b string) int { return cmp.Compare(rejected[a], rejected[b]) })
		log.FromContext(ctx).Info("Some chunks are invalid or too large to be marked: they are kept until their owners delete or repair them",
			"namespaces", len(rejected), "foremost", most, "chunks", rejected[most])
	}
	return left || unmarked, errors.Join(err, failed)
}

func namespaceOfPart(part snapshot.Part) string { return part.Session.Namespace }
