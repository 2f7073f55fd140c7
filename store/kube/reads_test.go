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
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestConversationReads: what is read of a conversation takes the same requests however long it is, and no chunk is read to reserve a place.
func TestConversationReads(t *testing.T) {
	namespace := env.NewNamespace(t)
	var mu sync.Mutex
	var sent []string
	st := openWith(t, kube.Options{Namespace: namespace, InlineBytes: -1}, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if path, of, found := strings.Cut(r.URL.Path, "/namespaces/"+namespace+"/"); found && r.Method == http.MethodGet {
			mu.Lock()
			resource, _, _ := strings.Cut(of, "/")
			sent = append(sent, path[strings.LastIndex(path, "/")+1:]+" "+resource)
			mu.Unlock()
		}
		return next.RoundTrip(r)
	})
	c := st.Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := c.Append(t.Context(), "conv_1", testturn.Make(fmt.Sprint("resp_", i), ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		read func() error
		want []string
	}{
		"count": {
			func() error { _, err := c.Count(t.Context(), "conv_1"); return err },
			[]string{"v1alpha1 conversationturns"},
		},
		"turns": {
			func() error { _, err := c.Turns(t.Context(), "conv_1", store.ListOptions{}); return err },
			[]string{"v1alpha1 conversationturns"},
		},
		"recent": {
			func() error { _, err := c.Recent(t.Context(), "conv_1", 1, store.ResolveOptions{}); return err },
			[]string{"v1alpha1 conversations", "v1alpha1 inputitems"},
		},
		"reserve": {
			func() error {
				r, err := c.Reserve(t.Context(), "conv_1", "resp_9", store.ReserveOptions{})
				if err == nil {
					r.Release(t.Context())
				}
				return err
			},
			[]string{"v1alpha1 conversations", "v1alpha1 responsesessions", "v1alpha1 responsesessions"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mu.Lock()
			sent = nil
			mu.Unlock()
			if err := tc.read(); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(sent)
			if diff := cmp.Diff(tc.want, sent); diff != "" {
				t.Errorf("reads (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOlderOperatorWithoutHistories: an operator that does not know a parameter is an error, and never another history.
func TestOlderOperatorWithoutHistories(t *testing.T) {
	st := openThrough(t, env.NewNamespace(t), withoutParameters("digests", "history", "last", "origins")) //nolint:bodyclose // the client closes it
	c := st.Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"count":  func() error { _, err := c.Count(t.Context(), "conv_1"); return err },
		"turns":  func() error { _, err := c.Turns(t.Context(), "conv_1", store.ListOptions{}); return err },
		"recent": func() error { _, err := c.Recent(t.Context(), "conv_1", 1, store.ResolveOptions{}); return err },
		"last": func() error {
			_, err := st.Resolve(t.Context(), "resp_1", store.ResolveOptions{Last: 1, Origins: true, Digests: true})
			return err
		},
		"last with bodies": func() error {
			_, err := st.Resolve(t.Context(), "resp_1", store.ResolveOptions{Last: 1, Bodies: true})
			return err
		},
	} {
		if err := read(); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: got %v, want ErrUnsupported", name, err)
		}
	}
}
