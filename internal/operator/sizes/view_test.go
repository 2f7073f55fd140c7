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

package sizes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// sent returns what the API server sends of a chunk.
func sent(t interface{ Fatal(...any) }, o *metav1.PartialObjectMetadata) *stored {
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	_, c := parseChunk(gjson.ParseBytes(raw))
	return c
}

// TestSummarySize: all of a summary counts.
func TestSummarySize(t *testing.T) {
	const raw = `{"metadata":{"namespace":"ns","name":"a","annotations":{"large":"xxxxxxxxxx"}},"spec":{"content":"text"}}`
	if metadata, got := parseSummary(gjson.Parse(raw)); got.bytes != int64(len(raw)) || got.namespace != "ns" || metadata.Name != "a" {
		t.Errorf("got %+v, want %d bytes", got, len(raw))
	}
}

func object(namespace, name string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
}

func TestSize(t *testing.T) {
	tests := map[string]struct {
		annotation string
		want       int64
	}{
		"correct size":   {annotation: v1alpha1.DataSize([]byte("four")), want: 8},
		"no data":        {annotation: "0", want: 0},
		"largest chunk":  {annotation: v1alpha1.DataSize(make([]byte, v1alpha1.MaxSnapshotChunkBytes)), want: 512 << 10},
		"no annotation":  {want: 512 << 10},
		"too large":      {annotation: "524289", want: 512 << 10},
		"negative":       {annotation: "-1", want: 512 << 10},
		"beyond 64 bits": {annotation: "99999999999999999999", want: 512 << 10},
		"not a number":   {annotation: "a few", want: 512 << 10},
		"trailing space": {annotation: "4 ", want: 512 << 10},
		"Unicode digit":  {annotation: "４", want: 512 << 10},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := object("ns", "a", map[string]string{"large": strings.Repeat("x", 1000)})
			if tc.annotation != "" {
				o.Annotations[v1alpha1.DataSizeAnnotation] = tc.annotation
			}
			metadata, err := json.Marshal(o.ObjectMeta)
			if err != nil {
				t.Fatal(err)
			}
			got := sent(t, o)
			if want := int64(len(metadata)) + tc.want; got.bytes != want {
				t.Errorf("got %d bytes, want %d", got.bytes, want)
			}
		})
	}
}

// TestView feeds the view possible events of the watch, and compares its sums with a count of the stored chunks.
func TestView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewChunks()
		s := (*store)(v)
		given := map[string]*metav1.PartialObjectMetadata{}
		draw := func(t *rapid.T) *metav1.PartialObjectMetadata {
			o := object(rapid.SampledFrom([]string{"ns", "other"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
				map[string]string{v1alpha1.DataSizeAnnotation: fmt.Sprint(rapid.IntRange(0, 600_000).Draw(t, "size"))})
			o.ResourceVersion = fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "version"))
			if rapid.Bool().Draw(t, "outdated") {
				o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "sessions.catena.dev/v1beta1"}}
			}
			return o
		}
		key := func(o *metav1.PartialObjectMetadata) string { return o.Namespace + "/" + o.Name }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				o := draw(t)
				given[key(o)] = o
				s.Set(sent(t, o))
			},
			"delete": func(t *rapid.T) {
				o := draw(t)
				delete(given, key(o))
				s.Remove(sent(t, o))
			},
			"list": func(t *rapid.T) {
				clear(given)
				var list []*stored
				for range rapid.IntRange(0, 3).Draw(t, "objects") {
					o := draw(t)
					if given[key(o)] != nil {
						continue
					}
					given[key(o)] = o
					list = append(list, sent(t, o))
				}
				s.Replace(list)
				if !v.HasSynced() {
					t.Fatal("the view has not synced")
				}
			},
			"": func(t *rapid.T) {
				want, wantOutdated := map[string]Usage{}, map[types.NamespacedName]string{}
				for _, o := range given {
					if len(o.OwnerReferences) > 0 {
						wantOutdated[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.ResourceVersion
					}
					c := sent(t, o)
					usage := want[o.Namespace]
					want[o.Namespace] = Usage{Objects: usage.Objects + 1, Bytes: usage.Bytes + c.bytes}
				}
				if diff := cmp.Diff(want, v.Usages()) + cmp.Diff(want["ns"], v.Usage("ns")); diff != "" {
					t.Fatalf("usage (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(wantOutdated, v.Outdated(10)) + cmp.Diff(len(wantOutdated), v.CountOutdated()); diff != "" {
					t.Fatalf("outdated (-want +got):\n%s", diff)
				}
			},
		})
	})
}
