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
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	sigsjson "sigs.k8s.io/json"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/snapshot"
)

// digest is a SHA-256.
type digest = [sha256.Size]byte

// turn is what a spec says, whatever else it contains.
type turn struct {
	responseID, previous string
	ref                  *v1alpha1.SnapshotReference
	// content is the SHA-256 of the canonical spec.
	content digest
}

// parseTurn decodes a spec as the API server sends it, even if Go cannot decode it as a ResponseSession.
func parseTurn(spec []byte) (*turn, error) {
	var fields map[string]any
	strict, err := sigsjson.UnmarshalStrict(spec, &fields)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("unable to decode its spec: %w", err)
	}
	t := &turn{}
	t.responseID, _ = fields["responseID"].(string)
	t.previous, _ = fields["previousResponseID"].(string)
	format, _ := fields["format"].(int64)
	if t.responseID == "" {
		return nil, errors.New("its spec has no responseID")
	}
	if reference, ok := fields["snapshot"].(map[string]any); ok {
		t.ref = &v1alpha1.SnapshotReference{}
		if err := json.Unmarshal([]byte(jsonvalue.RawMembers(jsonvalue.Text(spec), "snapshot")[0]), t.ref); err != nil {
			t.ref = &v1alpha1.SnapshotReference{} // the API server accepts numbers that are too large: it refers to nothing
		}
		fields["snapshot"] = stable(reference)
	}
	if err := snapshot.CheckFormats("this program", format, t.ref); err != nil {
		return nil, err
	}
	canonical, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("unable to encode its spec: %w", err)
	}
	t.content = sha256.Sum256(canonical)
	return t, nil
}

// stable returns the fields of a reference that do not depend on where, and how well compressed, the snapshot is stored.
func stable(reference map[string]any) map[string]any {
	kept := map[string]any{}
	for _, key := range []string{"format", "sizeBytes", "sha256"} {
		if value, ok := reference[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

// fold returns the digest of a turn with some content after a parent with a digest, or the zero digest for none.
func fold(parent, content digest) digest { return sha256.Sum256(append(parent[:], content[:]...)) }
