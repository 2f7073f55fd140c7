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

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// checkHistory returns an error if the history of the last turn is not exactly that of the turns.
func checkHistory(ctx context.Context, a api, namespace, query string, turns ...string) error {
	id := turns[len(turns)-1]
	response, err := a.do(ctx, itemsPath(namespace, id, query), "")
	if err != nil {
		return err
	}
	h, err := response.decode()
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if diff := h.check(turns, testutil.Items(turns...)); diff != "" {
		return fmt.Errorf("%s: %s", id, diff)
	}
	return nil
}

// saveAndResolve saves chains with several writers, and resolves each turn through all APIs as soon as it is saved.
func saveAndResolve(t *testing.T, namespace string, writers, chains, length int, apis ...api) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for writer := range writers {
		group.Go(func() error {
			for c := range chains {
				var turns []string
				for i := range length {
					id := fmt.Sprintf("resp_w%d_c%d_%d", writer, c, i)
					next := testsession.Make(namespace, id)
					if i > 0 {
						next.After(turns[i-1])
					}
					if err := env.Client.Create(ctx, next.Obj()); err != nil {
						return err
					}
					turns = append(turns, id)
					for _, a := range apis {
						if err := checkHistory(ctx, a, namespace, "", turns...); err != nil {
							return err
						}
					}
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestReadYourWrites(t *testing.T) {
	saveAndResolve(t, env.NewNamespace(t), 8, 3, 25, aggregated(t))
}

func TestLateParentResolvesAtOnce(t *testing.T) {
	namespace := env.NewNamespace(t)
	for i := range 30 {
		parent, child, grandchild := fmt.Sprintf("resp_%d_a", i), fmt.Sprintf("resp_%d_b", i), fmt.Sprintf("resp_%d_c", i)
		testsession.Make(namespace, grandchild).After(child).Create(t, env.Client)
		testsession.Make(namespace, child).After(parent).Create(t, env.Client)
		aggregated(t).resolve(t, namespace, grandchild, "").wantChainError(t, grandchild, invalid(chain.CodeNotFound, parent))
		testsession.Make(namespace, parent).Create(t, env.Client)
		if err := checkHistory(t.Context(), aggregated(t), namespace, "", parent, child, grandchild); err != nil {
			t.Fatal(err)
		}
	}
	testsession.WaitForReason(t, env.Client, namespace, "resp_29_c", v1alpha1.ReasonResolved)
}

func patchSpec(t *testing.T, namespace, id, spec string) *v1alpha1.ResponseSession {
	t.Helper()
	session := &v1alpha1.ResponseSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ObjectName(id)}}
	if err := env.Client.Patch(t.Context(), session, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
		t.Fatal(err)
	}
	return session
}

func TestCompletedTurnResolvesAtOnce(t *testing.T) {
	namespace := env.NewNamespace(t)
	for i := range 30 {
		parent, child := fmt.Sprintf("resp_%d_a", i), fmt.Sprintf("resp_%d_b", i)
		testsession.Make(namespace, parent).Status(v1alpha1.ResponseStatusInProgress).Create(t, env.Client)
		testsession.Make(namespace, child).After(parent).Create(t, env.Client)
		aggregated(t).resolve(t, namespace, child, "").wantChainError(t, child, unavailable(parent))
		patchSpec(t, namespace, parent, `{"responseStatus":"completed"}`)
		if err := checkHistory(t.Context(), aggregated(t), namespace, "", parent, child); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOverwriteIsSeenWithItsResourceVersion: without the parameter, a resolve may miss an overwrite until the watch has it.
func TestOverwriteIsSeenWithItsResourceVersion(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 4)
	if err := checkHistory(t.Context(), aggregated(t), namespace, "", ids...); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		version := fmt.Sprintf("version %d", i)
		written := patchSpec(t, namespace, ids[1], `{"response":{"output":[`+testutil.AssistantMessage(version)+`]}}`)
		want := testutil.Items(ids...)
		want[3] = testutil.AssistantMessage(version)
		h := aggregated(t).resolve(t, namespace, ids[3], "resourceVersion="+written.ResourceVersion).history(t)
		if diff := h.check(ids, want); diff != "" {
			t.Fatal(diff)
		}
	}
	// A future version also makes the operator read everything live.
	aggregated(t).resolve(t, namespace, ids[3], "resourceVersion=9223372036854775807").history(t)
}

func TestRecreatedTurnIsSeenWithItsResourceVersion(t *testing.T) {
	namespace := env.NewNamespace(t)
	for i := range 20 {
		id := fmt.Sprintf("resp_%d", i)
		old := testsession.Make(namespace, id).Create(t, env.Client)
		if err := checkHistory(t.Context(), aggregated(t), namespace, "", id); err != nil {
			t.Fatal(err)
		}
		if err := env.Client.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		created := testsession.Make(namespace, id).Response(`{"output":[`+testutil.AssistantMessage("another")+`]}`).Create(t, env.Client)
		h := aggregated(t).resolve(t, namespace, id, "resourceVersion="+created.ResourceVersion).history(t)
		if diff := h.check([]string{id}, []string{testutil.UserMessage("question of " + id), testutil.AssistantMessage("another")}); diff != "" || h.Metadata.UID != created.UID {
			t.Fatalf("UID %s, want %s: %s", h.Metadata.UID, created.UID, diff)
		}
	}
}

// TestDeletedWhileResolved checks that resolves return the whole history or a typed error, never a part of the history.
func TestDeletedWhileResolved(t *testing.T) {
	namespace := env.NewNamespace(t)
	a := aggregated(t)
	cases := map[string]struct {
		victim int
		orphan bool
	}{
		"the root, with its descendants":    {victim: 0},
		"the root, without its descendants": {victim: 0, orphan: true},
		"a turn in the middle":              {victim: 3, orphan: true},
		"the resolved turn":                 {victim: 7},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for round := range 8 {
				ids := createChain(t, namespace, fmt.Sprintf("resp_%d_%t_%d", tc.victim, tc.orphan, round), 8)
				waitForOwners(t, namespace, ids[1:])
				group, ctx := errgroup.WithContext(t.Context())
				for range 4 {
					group.Go(func() error { return resolveUntilGone(ctx, a, namespace, ids) })
				}
				policy := metav1.DeletePropagationBackground
				if tc.orphan {
					policy = metav1.DeletePropagationOrphan
				}
				victim := testsession.Make(namespace, ids[tc.victim]).Obj()
				if err := env.Client.Delete(t.Context(), victim, client.PropagationPolicy(policy)); err != nil {
					t.Fatal(err)
				}
				if err := group.Wait(); err != nil {
					t.Fatal(err)
				}
				want := notFound(ids[7]) // once garbage collection has deleted the descendants
				if tc.orphan {
					want = invalid(chain.CodeNotFound, ids[tc.victim])
				}
				testutil.Eventually(t, func(ctx context.Context) error {
					response, err := a.do(ctx, itemsPath(namespace, ids[7], ""), "")
					return unless(err == nil && response.code == want.http, fmt.Sprint(response.code, err))
				})
				a.resolve(t, namespace, ids[7], "").wantChainError(t, ids[7], want)
			}
		})
	}
}

// waitForOwners waits until the turns have ownerReferences: deletions cascade along them, and a deletion that orphans the
// children removes the references that exist at that time.
func waitForOwners(t *testing.T, namespace string, ids []string) {
	t.Helper()
	for _, id := range ids {
		session := testsession.Make(namespace, id).Obj()
		testutil.Eventually(t, func(ctx context.Context) error {
			err := env.Client.Get(ctx, client.ObjectKeyFromObject(session), session)
			return unless(err == nil && len(session.OwnerReferences) == 1, fmt.Sprint("owner of ", id, ": ", err))
		})
	}
}

// resolveUntilGone resolves until that fails with the expected error.
func resolveUntilGone(ctx context.Context, a api, namespace string, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, testutil.Patience)
	defer cancel()
	last := ids[len(ids)-1]
	for {
		response, err := a.do(ctx, itemsPath(namespace, last, ""), "")
		if err != nil {
			return err
		}
		if response.code == http.StatusOK {
			h, err := response.decode()
			if err != nil {
				return err
			}
			if diff := h.check(ids, testutil.Items(ids...)); diff != "" {
				return fmt.Errorf("incomplete history: %s", diff)
			}
			continue
		}
		status, err := response.status()
		if err != nil {
			return err
		}
		if status.Details == nil || len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != metav1.CauseType(chain.CodeNotFound) ||
			!strings.HasPrefix(status.Details.Causes[0].Field, ids[0][:len(ids[0])-1]) {
			return fmt.Errorf("got status %d: %s", response.code, response.body)
		}
		return nil
	}
}
