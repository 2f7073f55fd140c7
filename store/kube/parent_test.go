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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestGuessedParent: a turn that is saved with the handle of its parent is kept and is owned by its current parent, if there is one,
// whatever has happened to the parent since it was resolved, and even if garbage collection is faster than the save.
func TestGuessedParent(t *testing.T) {
	remove := func(t *testing.T, s *store.Store) {
		t.Helper()
		if err := s.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	replace := func(t *testing.T, s *store.Store) {
		t.Helper()
		remove(t, s)
		save(t, s, testturn.Make("resp_1", ""))
	}
	for name, tc := range map[string]struct {
		change    func(t *testing.T, s *store.Store)
		wantOwner bool
		// create and read, if set, answer the first request that creates the turn, and that reads the parent.
		create, read func(next http.RoundTripper, r *http.Request) (*http.Response, error)
		// collected is set if the parent is read only after garbage collection has deleted the turn.
		collected bool
	}{
		"unchanged":                {wantOwner: true},
		"deleted":                  {change: remove},
		"replaced":                 {change: replace, wantOwner: true},
		"unchanged, response lost": {wantOwner: true, create: loseResponse},
		"deleted, response lost":   {change: remove, create: loseResponse},
		"replaced, response lost":  {change: replace, wantOwner: true, create: loseResponse},
		"unchanged, not readable":  {wantOwner: true, read: overloaded},
		"replaced, not readable":   {change: replace, wantOwner: true, read: overloaded},
		"deleted, collected":       {change: remove, collected: true},
		"replaced, collected":      {change: replace, wantOwner: true, collected: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits for garbage collection
			plain := open(t, kube.Options{})
			var creates, reads atomic.Int32
			created := make(chan struct{})
			s := openThrough(t, plain.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				isRead := readsParent(r)
				switch {
				case tc.create != nil && r.Method == http.MethodPost && creates.Add(1) == 1:
					return tc.create(next, r)
				case tc.read != nil && isRead && reads.Add(1) == 1:
					return tc.read(next, r)
				case tc.collected && isRead && reads.Add(1) == 1:
					<-created
					waitUntilGone(t, plain.Namespace(), "resp_2")
				case tc.collected && r.Method == http.MethodPost && creates.Add(1) == 1:
					defer close(created)
				}
				return next.RoundTrip(r)
			})
			save(t, plain, testturn.Make("resp_1", ""))
			history, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				tc.change(t, plain)
			}
			if err := s.Save(t.Context(), testturn.Make("resp_2", "resp_1"), store.SaveOptions{Parent: history.Parent}); err != nil {
				t.Fatal(err)
			}
			waitForCollection(t, s.Namespace())
			var want []types.UID
			if tc.wantOwner {
				want = append(want, object(t, s.Namespace(), "resp_1").UID)
			}
			var got []types.UID
			for _, owner := range object(t, s.Namespace(), "resp_2").OwnerReferences {
				got = append(got, owner.UID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

// loseResponse sends a request, and returns an error instead of the response.
func loseResponse(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(io.ErrUnexpectedEOF, response.Body.Close())
}

func overloaded(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	return answer(r, http.StatusServiceUnavailable), nil
}

// readsParent reports whether a save reads its parent resp_1.
func readsParent(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/resp.1") && strings.Contains(r.Header.Get("Accept"), kubeclient.MetadataOnly)
}

// waitForCollection waits until garbage collection has deleted a session that was just created with an owner that does not exist.
func waitForCollection(t *testing.T, namespace string) {
	t.Helper()
	orphan := testsession.Make(namespace, "resp_orphan").Obj()
	parent := testsession.Make(namespace, "resp_none").Obj()
	parent.UID = "3e0b0a2b-6a61-4b0e-9d3e-5f0a1c2d3e4f"
	orphan.OwnerReferences = append(orphan.OwnerReferences, testsession.OwnerReference(parent))
	if err := env.Client.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, namespace, "resp_orphan")
}

func waitUntilGone(t *testing.T, namespace, id string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, &v1alpha1.ResponseSession{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is not deleted: %w", id, err)
	})
}

// TestParentChangesWhileCreateWaits: a create waits for its turn, and meanwhile the parent whose UID it has is deleted alone, or replaced. The
// turn has the right owner all the same, and garbage collection keeps it.
func TestParentChangesWhileCreateWaits(t *testing.T) {
	for name, tc := range map[string]struct{ replaced, guessed, lost, unreadable, overwrite bool }{
		"deleted":                 {},
		"replaced":                {replaced: true},
		"deleted, guessed":        {guessed: true},
		"replaced, guessed":       {replaced: true, guessed: true},
		"deleted, response lost":  {lost: true},
		"replaced, response lost": {replaced: true, lost: true},
		"replaced, not readable":  {replaced: true, unreadable: true},

		"deleted, overwrite, response lost":  {lost: true, overwrite: true},
		"replaced, overwrite, response lost": {replaced: true, lost: true, overwrite: true},
		"replaced, overwrite, not readable":  {replaced: true, unreadable: true, overwrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits for garbage collection
			plain := open(t, kube.Options{})
			parentRead := make(chan struct{})
			var creates, reads atomic.Int32
			read, change := sync.OnceFunc(func() { close(parentRead) }), sync.OnceFunc(func() {
				time.Sleep(kube.OwnerValid) //nolint:forbidigo // the create waits for its turn
				<-parentRead
				if err := plain.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				if tc.replaced {
					save(t, plain, testturn.Make("resp_1", ""))
				}
			})
			s := openThrough(t, plain.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					change()
					if tc.lost && creates.Add(1) == 1 {
						return loseResponse(next, r)
					}
				}
				if tc.unreadable && strings.HasSuffix(r.URL.Path, "/resp.1") && reads.Add(1) == 2 {
					return overloaded(next, r)
				}
				response, err := next.RoundTrip(r)
				if readsParent(r) {
					read()
				}
				return response, err
			})
			save(t, plain, testturn.Make("resp_1", ""))
			options := store.SaveOptions{Overwrite: tc.overwrite}
			if tc.guessed {
				history, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{})
				if err != nil {
					t.Fatal(err)
				}
				options.Parent = history.Parent
			}
			if err := s.Save(t.Context(), testturn.Make("resp_2", "resp_1"), options); err != nil {
				t.Fatal(err)
			}
			waitForCollection(t, s.Namespace())
			var want, got []types.UID
			if tc.replaced {
				want = append(want, object(t, s.Namespace(), "resp_1").UID)
			}
			for _, owner := range object(t, s.Namespace(), "resp_2").OwnerReferences {
				got = append(got, owner.UID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLateCreate: a create that the save has given up succeeds after the parent was replaced and just before the next create, or the next attempt
// of an overwrite. The turn has the right owner all the same.
func TestLateCreate(t *testing.T) {
	for name, overwrite := range map[string]bool{"create": false, "overwrite": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits for garbage collection
			plain := open(t, kube.Options{})
			var creates atomic.Int32
			var late func()
			s := openThrough(t, plain.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if overwrite && readsParent(r) && creates.CompareAndSwap(1, 2) { // after the turn was not found
					late()
					return overloaded(next, r)
				}
				if r.Method != http.MethodPost {
					return next.RoundTrip(r)
				}
				switch creates.Add(1) {
				case 1:
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					late = func() {
						first := r.Clone(context.WithoutCancel(r.Context()))
						first.Body = io.NopCloser(bytes.NewReader(body))
						response, err := next.RoundTrip(first)
						if err != nil {
							t.Error(err)
							return
						}
						if response.StatusCode != http.StatusCreated {
							t.Errorf("the late create was answered with %d", response.StatusCode)
						}
						_ = response.Body.Close()
					}
					if err := plain.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
						t.Error(err)
					}
					save(t, plain, testturn.Make("resp_1", ""))
					return nil, io.ErrUnexpectedEOF
				case 2:
					late()
				}
				return next.RoundTrip(r)
			})
			save(t, plain, testturn.Make("resp_1", ""))
			if err := s.Save(t.Context(), testturn.Make("resp_2", "resp_1"), store.SaveOptions{Overwrite: overwrite}); err != nil {
				t.Fatal(err)
			}
			waitForCollection(t, s.Namespace())
			owners, want := object(t, s.Namespace(), "resp_2").OwnerReferences, object(t, s.Namespace(), "resp_1").UID
			if len(owners) != 1 || owners[0].UID != want || creates.Load() < 2 {
				t.Errorf("after %d creates, the owners are %v, want %s", creates.Load(), owners, want)
			}
		})
	}
}
