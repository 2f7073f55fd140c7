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
	"errors"
	"fmt"
	"testing"

	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestOtherNamespaces: an invalid namespace never addresses another namespace.
func TestOtherNamespaces(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, testturn.Make("resp_1", ""))
	if _, err := s.InNamespace("x/../"+s.Namespace()).Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// TestOpenURL: the parameters of the URL reach the store.
func TestOpenURL(t *testing.T) {
	namespace := open(t, kube.Options{}).Namespace()
	base := testenv.StoreURL(namespace, env.Kubeconfig)
	small, large := testturn.Make("resp_1", ""), testturn.Make("resp_2", "")
	large.Metadata = []byte(`{"a":1}`)
	s, err := store.Open(t.Context(), fmt.Sprintf("%s&max-turn-bytes=%d&inline-bytes=-1", base, len(small.Request)+len(small.Response)))
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, small)
	if object(t, namespace, "resp_1").Spec.Snapshot == nil {
		t.Error("the bodies are stored in the object")
	}
	if err := s.Save(t.Context(), large, store.SaveOptions{}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	for _, parameters := range []string{"&max-turn-bytes=x", "&max-turn-bytes=-1", "&inline-bytes=2000000", "&max-requests=1", "&unknown=1", "#fragment"} {
		if s, err := store.Open(t.Context(), base+parameters); err == nil {
			t.Errorf("%s: got the store %v, want an error", parameters, s)
		}
	}
}
