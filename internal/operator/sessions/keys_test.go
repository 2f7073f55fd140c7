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
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// TestKeys: pages of any size add up to the sorted list of all sessions, in one namespace and in all namespaces.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewView(64, time.Hour)
		var all []types.NamespacedName
		var objects []*v1alpha1.ResponseSession
		for _, n := range rapid.SliceOfDistinct(rapid.IntRange(0, 50), rapid.ID).Draw(t, "sessions") {
			o := object(fmt.Sprintf("resp_%d", n), "", n+1)
			o.Namespace = fmt.Sprint("ns", n%3)
			objects = append(objects, o)
			all = append(all, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
		}
		replace((*store)(v), 100, objects...)
		namespace := rapid.SampledFrom([]string{"", "ns0", "ns1", "none"}).Draw(t, "namespace")
		limit := rapid.IntRange(1, 20).Draw(t, "limit")

		want := slices.DeleteFunc(all, func(k types.NamespacedName) bool { return namespace != "" && k.Namespace != namespace })
		slices.SortFunc(want, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
		var got []types.NamespacedName
		for after := (types.NamespacedName{}); ; after = got[len(got)-1] {
			page := v.Keys(namespace, after, limit)
			if len(page) > limit {
				t.Fatalf("got %d keys, more than %d", len(page), limit)
			}
			if got = append(got, page...); len(page) < limit {
				break
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
	})
}
