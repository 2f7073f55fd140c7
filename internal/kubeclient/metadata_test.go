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

package kubeclient

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// TestParseMetadata compares with encoding/json.
func TestParseMetadata(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", `"}],{`, `\`, "é\u2028<>&"}))
		draw := func(name string) string { return text.Draw(t, name) }
		want := metav1.ObjectMeta{
			Namespace: draw("namespace"), Name: draw("name"), UID: types.UID(draw("uid")), ResourceVersion: draw("version"),
			Generation: rapid.Int64Min(0).Draw(t, "generation"),
		}
		if rapid.Bool().Draw(t, "deleting") {
			want.DeletionTimestamp = &metav1.Time{}
		}
		if rapid.Bool().Draw(t, "created") {
			want.CreationTimestamp = metav1.NewTime(time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "seconds"), 0).UTC())
		}
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(annotations), rapid.ID).Draw(t, "annotations") {
			metav1.SetMetaDataAnnotation(&want, key, draw(key))
		}
		for range rapid.IntRange(0, 3).Draw(t, "owners") {
			want.OwnerReferences = append(want.OwnerReferences, metav1.OwnerReference{
				APIVersion: draw("apiVersion"), Kind: draw("kind"), Name: draw("owner"), UID: types.UID(draw("ownerUID")),
			})
		}
		sent := want.DeepCopy()
		if want.DeletionTimestamp != nil {
			sent.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		sent.Labels, sent.Finalizers = map[string]string{"name": draw("label")}, []string{draw("finalizer")}
		sent.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: draw("manager"), FieldsV1: metav1.NewFieldsV1(`{"f:name":{}}`)}}
		if rapid.Bool().Draw(t, "other annotation") {
			metav1.SetMetaDataAnnotation(sent, "other", draw("other"))
		}
		raw, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, ParseMetadata(gjson.ParseBytes(raw))); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", raw, diff)
		}
	})
}

// TestParseOtherMetadata: what no API server sends has no metadata.
func TestParseOtherMetadata(t *testing.T) {
	for _, raw := range []string{"", "null", "[]", `"a"`, `{"name":1,"annotations":["a"],"ownerReferences":null,"creationTimestamp":"yesterday"}`,
		`{"annotations":{"` + v1alpha1.SessionAnnotation + `":{}}}`} {
		if diff := cmp.Diff(metav1.ObjectMeta{}, ParseMetadata(gjson.Parse(raw))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

// TestGetMetadata checks that only an object is accepted as one, whatever answers in the place of the API server.
func TestGetMetadata(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		status  int // 200 if it is 0
		want    types.UID
		wantErr string
	}{
		"an object":     {body: `{"kind":"PartialObjectMetadata","metadata":{"uid":"1"}}`, want: "1"},
		"no UID":        {body: `{"kind":"PartialObjectMetadata","metadata":{}}`, wantErr: "has no UID"},
		"no metadata":   {body: `{}`, wantErr: "has no UID"},
		"nothing":       {body: ``, wantErr: "has no UID"},
		"a list":        {body: `[]`, wantErr: "must be an object"},
		"HTML":          {body: `<html></html>`, wantErr: "must be JSON"},
		"half of it":    {body: `{"metadata":{"uid":"1"}`, wantErr: "must be JSON"},
		"a Status":      {body: `{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`, status: http.StatusForbidden, wantErr: "no"},
		"another error": {body: `{"metadata":{"uid":"1"}}`, status: http.StatusInternalServerError, wantErr: "server"},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept"); got != MetadataOnly {
					t.Errorf("the request accepts %q", got)
				}
				w.Header().Set("Content-Type", "application/json")
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				_, _ = io.WriteString(w, tc.body)
			})
			got, err := GetMetadata(t.Context(), client, Sessions, types.NamespacedName{Namespace: "a", Name: "b"})
			switch {
			case err == nil && (tc.wantErr != "" || got.UID != tc.want):
				t.Errorf("got %+v, want UID %q and error %q", got, tc.want, tc.wantErr)
			case err != nil && (tc.wantErr == "" || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
}
