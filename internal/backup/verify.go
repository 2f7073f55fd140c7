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
	"context"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// verify reads everything that was imported, and compares the digest of each turn with that in the file.
func (i *importer) verify(ctx context.Context) error {
	step, end := i.Progress("verify", len(i.entries))
	defer end()
	contents := make([]digest, len(i.entries))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(i.Concurrency)
	for index, e := range i.entries {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() (err error) {
			defer step()
			if e.outcome.stored() {
				contents[index], err = i.readContent(ctx, e)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	i.compareDigests(contents)
	return nil
}

// compareDigests sets which entries are verified. Parents come first. A content is zero if its problem has been reported, or if the
// session was not imported.
func (i *importer) compareDigests(contents []digest) {
	digests := make([]digest, len(i.entries))
	for index, e := range i.entries {
		var parent digest
		whole := true
		if e.parent >= 0 {
			parent, whole = digests[e.parent], i.entries[e.parent].verified
		}
		digests[index] = fold(parent, contents[index])
		e.verified = digests[index] == e.digest
		if whole && !e.verified && contents[index] != (digest{}) {
			i.Problem(e.name, "is not stored as it was exported: it was overwritten while the import was running")
		}
	}
}

// readContent returns the SHA-256 of the canonical spec of a stored session, or zero if it cannot be read.
func (i *importer) readContent(ctx context.Context, e *entry) (digest, error) {
	name := types.NamespacedName{Namespace: i.namespace, Name: e.name}
	object, found, err := i.object(ctx, name)
	if err != nil {
		return digest{}, named(e.name, err)
	}
	if !found {
		i.Problem(e.name, "is gone: it was deleted while the import was running")
		return digest{}, nil
	}
	t, err := parseTurn([]byte(jsonvalue.RawMembers(jsonvalue.Text(object), "spec")[0]))
	if err != nil {
		return digest{}, named(e.name, err)
	}
	if t.ref == nil || e.withoutBodies {
		return t.content, nil
	}
	release, err := i.take(ctx, t.ref.SizeBytes)
	if err != nil {
		return digest{}, err
	}
	defer release()
	_, problem, err := i.read(ctx, name, t.ref)
	if err != nil {
		return digest{}, named(e.name, err)
	}
	if problem != "" {
		i.Problem(e.name, problem)
		return digest{}, nil
	}
	return t.content, nil
}
