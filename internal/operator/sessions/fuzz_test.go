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

package sessions

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
)

// FuzzNewRecord: any JSON yields a record and items that share no memory with it, and the record of an object that Go can decode has
// the fields that Go has decoded.
func FuzzNewRecord(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"namespace":"ns","name":"resp.1","uid":"u","generation":1,"resourceVersion":"3"},"spec":{"responseID":"resp_1","responseStatus":"completed"}}`,
		`{"metadata":{"name":"a","ownerReferences":[{"kind":"ResponseSession","name":"b","uid":"c"}]},"spec":{"responseID":"a","previousResponseID":"b"}}`,
		`{"metadata":{"name":5,"generation":"x","annotations":[],"ownerReferences":{}},"spec":[],"status":"s"}`,
		`{"spec":{"createdAt":"2026-01-01t00:00:00z","snapshot":{"key":"k","sizeBytes":1e30},"request":null}}`,
		`{"spec":{"request":{"input":[{}]},"response":{"output":5}},"status":{"conditions":[{"type":"ChainValid","lastTransitionTime":"no"}]}}`,
		`{"spec":{"snapshot":{"store":"Chunks","key":"k","sizeBytes":5}},"status":{"observedGeneration":1}}`,
		`[]`, `null`, `5`, `""`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			t.Skip("the API server sends JSON")
		}
		r := NewRecord(gjson.ParseBytes(raw), nil)
		// The memory of an object is reused for the next one.
		reused := bytes.Clone(raw)
		other := NewRecord(gjson.Parse(jsonvalue.Text(reused)), nil)
		flattened, items := Flatten(gjson.Parse(jsonvalue.Text(reused)))
		clear(reused)
		wantFlattened, wantItems := Flatten(gjson.ParseBytes(raw))
		want, got := []any{r, wantFlattened, wantItems}, []any{other, flattened, items}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(chain.Items{})); diff != "" {
			t.Errorf("the record or the items have changed with the memory of their object (-want +got):\n%s", diff)
		}
		if r.Turn.Unreadable != (r.Problem() != "") && r.Snapshot() == nil {
			t.Errorf("unreadable %t, with the problem %q", r.Turn.Unreadable, r.Problem())
		}
		object := &v1alpha1.ResponseSession{}
		if json.Unmarshal(raw, object) != nil {
			return
		}
		// encoding/json ignores the case of names and merges duplicate fields. Its own output has neither.
		canonical, err := json.Marshal(object)
		if err != nil {
			return // a time beyond the year 9999
		}
		r = NewRecord(gjson.ParseBytes(canonical), nil)
		if r.Namespace != object.Namespace || r.Name != object.Name || r.UID != NewUID(object.UID) || r.Generation != object.Generation ||
			r.Turn.ID != object.Spec.ResponseID || r.Turn.Previous != object.Spec.PreviousResponseID || r.Turn.Status != object.Spec.ResponseStatus ||
			r.Deleting != (object.DeletionTimestamp != nil) || r.Written != NewFingerprint(&object.Status) {
			t.Errorf("got %+v of %s", r, canonical)
		}
	})
}
