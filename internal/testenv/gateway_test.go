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

package testenv_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testenv"
)

// TestStoreURL: a repository can be in any folder.
func TestStoreURL(t *testing.T) {
	want := url.Values{"namespace": {"default"}, "kubeconfig": {"/home/a+b/c&d/100%/.run/kubeconfig"}}
	got, err := url.Parse(testenv.StoreURL("default", want.Get("kubeconfig")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Query()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
