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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

func TestIsOutdated(t *testing.T) {
	for apiVersion, want := range map[string]bool{
		"sessions.catena.dev/v1alpha1":  false,
		"sessions.catena.dev/v1beta1":   true,
		"sessions.catena.dev/v1":        true,
		"sessions.catena.dev/":          true,
		"sessions.catena.dev":           false, // parsed as a version of the core group
		"sessions.catena.dev/v1/x":      false,
		"resolve.catena.dev/v1beta1":    false,
		"x.sessions.catena.dev/v1beta1": false,
		"v1":                            false,
		"":                              false,
	} {
		if got := IsOutdated(metav1.OwnerReference{APIVersion: apiVersion}); got != want {
			t.Errorf("%q: got %t, want %t", apiVersion, got, want)
		}
	}
}

func TestHasOutdatedOwner(t *testing.T) {
	tests := map[string]struct {
		owners, outdated int
		wantOutdated     bool
	}{
		"none":                       {},
		"one":                        {owners: 1},
		"one, outdated":              {owners: 1, outdated: 1, wantOutdated: true},
		"one less than the maximum":  {owners: v1alpha1.MaxOwnerReferences - 1, outdated: 1, wantOutdated: true},
		"the maximum":                {owners: v1alpha1.MaxOwnerReferences, outdated: 1, wantOutdated: true},
		"the maximum, none outdated": {owners: v1alpha1.MaxOwnerReferences},
		"more than the maximum":      {owners: v1alpha1.MaxOwnerReferences + 1, outdated: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			owners := make([]metav1.OwnerReference, tc.owners)
			for i := range tc.outdated {
				owners[i].APIVersion = "sessions.catena.dev/v1beta1"
			}
			if got := HasOutdatedOwner(owners); got != tc.wantOutdated {
				t.Errorf("HasOutdatedOwner: got %t, want %t", got, tc.wantOutdated)
			}
		})
	}
}
