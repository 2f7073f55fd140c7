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

package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/store/kube"
)

// TestDecodeIdentity: the fields that protect a turn from being replaced, and its snapshot, are also read from an object that cannot be
// decoded.
func TestDecodeIdentity(t *testing.T) {
	const undecodable = `"responseID":"resp_1","createdAt":"2026-01-01t00:00:00z"`
	for name, tc := range map[string]struct {
		spec          string
		wantPrevious  string
		wantImmutable bool
		wantFormat    int32
		wantSnapshot  *v1alpha1.SnapshotReference
	}{
		"root":                  {undecodable, "", false, 0, nil},
		"parent":                {undecodable + `,"previousResponseID":"resp_0"`, "resp_0", false, 0, nil},
		"immutable":             {undecodable + `,"immutable":true`, "", true, 0, nil},
		"newer format":          {undecodable + `,"format":2`, "", false, 2, nil},
		"newer snapshot format": {undecodable + `,"snapshot":{"format":2,"sizeBytes":"x"}`, "", false, 0, &v1alpha1.SnapshotReference{Format: 2}},
		"snapshot": {
			undecodable + `,"snapshot":{"store":"Chunks","key":"k","parts":3}`, "", false, 0,
			&v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreChunks, Key: "k", Parts: 3},
		},
		"fields of a body": {undecodable + `,"request":{"immutable":true,"format":2}`, "", false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := kube.DecodeIdentity([]byte(`{"metadata":{"name":"resp.1","uid":"u","generation":3,"resourceVersion":"7"},"spec":{` + tc.spec + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			if object.UID != "u" || object.Generation != 3 || object.ResourceVersion != "7" || object.Spec.ResponseID != "resp_1" {
				t.Errorf("got %+v", object)
			}
			if object.Spec.PreviousResponseID != tc.wantPrevious || *object.Spec.Immutable != tc.wantImmutable ||
				object.Spec.Format != tc.wantFormat || !cmp.Equal(object.Spec.Snapshot, tc.wantSnapshot) {
				t.Errorf("got %+v", object.Spec)
			}
		})
	}
}
