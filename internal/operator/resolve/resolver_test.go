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

package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestResolveAheadOfTheWatch changes sessions after the view has stopped, and just before the result is read from a view that
// follows the watch.
func TestResolveAheadOfTheWatch(t *testing.T) {
	plain := chain.WalkOptions{MaxDepth: chain.DefaultMaxDepth}
	tests := map[string]struct {
		// before saves the sessions that the view contains. It returns a function that makes changes that the view has not
		// seen, and returns the options to resolve with.
		before func(f *fixture) func() chain.WalkOptions
		id     string
		want   string
	}{
		"nothing changed": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { return plain }
			},
			id: "b", want: "says a, says b",
		},
		"new turn": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				return func() chain.WalkOptions { f.save("b", "a"); return plain }
			},
			id: "b", want: "says a, says b",
		},
		"three new turns": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.save("a", ""); f.save("b", "a"); f.save("c", "b"); return plain }
			},
			id: "c", want: "says a, says b, says c",
		},
		"missing parent was saved": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("b", "a")
				return func() chain.WalkOptions { f.save("a", ""); return plain }
			},
			id: "b", want: "says a, says b",
		},
		"pending turn was completed": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "", withStatus("in_progress"))
				f.save("b", "a")
				return func() chain.WalkOptions {
					f.update(a, withStatus("completed"))
					return plain
				}
			},
			id: "b", want: "says a, says b",
		},
		"unreadable turn was repaired": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "", func(s *v1alpha1.ResponseSession) {
					s.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"instructions":[]}`)}
				})
				return func() chain.WalkOptions {
					f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Request = nil })
					return plain
				}
			},
			id: "a", want: "says a",
		},
		"cycle was removed": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "b")
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); f.save("a", ""); return plain }
			},
			id: "b", want: "says a, says b",
		},
		"chain beyond the limit was shortened": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				b := f.save("b", "a")
				f.save("c", "b")
				return func() chain.WalkOptions { f.delete(b); f.save("b", ""); return chain.WalkOptions{MaxDepth: 2} }
			},
			id: "c", want: "says b, says c",
		},
		"body not read yet, turn deleted": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); return plain }
			},
			id: "b", want: "session.chain.not_found at a",
		},
		"body not read yet, turn being deleted": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.saveHeld("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); return plain }
			},
			id: "b", want: "session.chain.not_found at a",
		},
		"new turn being deleted": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.delete(f.saveHeld("a", "")); return plain }
			},
			id: "a", want: "session.chain.not_found at a",
		},
		"new turn being deleted, by object name": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.delete(f.saveHeld("a_1", "")); return plain }
			},
			id: "a.1", want: "session.chain.not_found at a.1",
		},
		"turn being deleted, snapshot missing": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.saveHeld("a", "", withLostSnapshot)
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); return plain }
			},
			id: "b", want: "session.chain.not_found at a",
		},
		"deleted turn saved again, by object name": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.saveHeld("a_1", "")
				f.delete(a)
				return func() chain.WalkOptions { f.release(a); f.save("a_1", ""); return plain }
			},
			id: "a.1", want: "says a_1",
		},
		"body not read yet, turn overwritten": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions {
					f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output("says a anew") })
					return plain
				}
			},
			id: "b", want: "says a anew, says b",
		},
		"body not read yet, turn failed": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { f.update(a, withStatus("failed")); return plain }
			},
			id: "b", want: "session.chain.unavailable at a",
		},
		"deleted and saved with another parent": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				b := f.save("b", "a")
				f.save("c", "b")
				return func() chain.WalkOptions { f.delete(b); f.save("z", ""); f.save("b", "z"); return plain }
			},
			id: "c", want: "says z, says b, says c",
		},
		"ID that looks like an object name": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a_b", "")
				return func() chain.WalkOptions { f.save("a.b", ""); return plain }
			},
			id: "a.b", want: "says a.b",
		},
		"object name": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a_b", "")
				return func() chain.WalkOptions { return plain }
			},
			id: "a.b", want: "says a_b",
		},
		"object name of a new turn": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.save("A/b", ""); return plain }
			},
			id: v1alpha1.ObjectName("A/b"), want: "says A/b",
		},
		"missing turn": {
			before: func(*fixture) func() chain.WalkOptions { return func() chain.WalkOptions { return plain } },
			id:     "a", want: "session.chain.not_found at a",
		},
		"failed turn, includeIncomplete": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "", withStatus("failed"))
				return func() chain.WalkOptions { return chain.WalkOptions{MaxDepth: 1, IncludeIncomplete: true} }
			},
			id: "a", want: "says a",
		},
		"incomplete turn, continueIncomplete": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "", withStatus("incomplete"))
				return func() chain.WalkOptions { return chain.WalkOptions{MaxDepth: 1, ContinueIncomplete: true} }
			},
			id: "a", want: "says a",
		},
		"depth 0": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				return func() chain.WalkOptions { return chain.WalkOptions{} }
			},
			id: "a", want: "session.chain.depth_exceeded at a",
		},
	}
	for name, tc := range tests {
		for view, start := range map[string]func(*fixture){"frozen": (*fixture).freeze, "following": (*fixture).follow} {
			t.Run(name+"/"+view, func(t *testing.T) {
				f := newFixture(t)
				change := tc.before(f)
				start(f)
				options := change()
				if diff := cmp.Diff(tc.want, f.answer(tc.id, options)); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestErrorContainsProblem: the error of an unreadable turn gives the reason, as the message of its condition does.
func TestErrorContainsProblem(t *testing.T) {
	f := newFixture(t)
	instructions := func(s *v1alpha1.ResponseSession) {
		s.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"instructions":[]}`)}
	}
	f.save("a", "", instructions)
	f.save("b", "a")
	f.freeze()
	f.save("new", "", instructions)
	for id, at := range map[string]string{"a": "a", "b": "a", "new": "new"} {
		want := &chain.Error{
			Rule: chain.SnapshotUnreadable, ResponseID: at, PreviousResponseID: id, MaxDepth: 64, Status: "completed",
			Problem: "unable to read `instructions` of the request: must be a string",
		}
		_, err := f.resolver.Resolve(t.Context(), f.namespace, id, 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
		got, _ := errors.AsType[*chain.Error](err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("error of %s (-want +got):\n%s", id, diff)
		}
	}
}

// TestResolveResourceVersion: a cached body may be as old as the view, unless the query requires a newer one.
func TestResolveResourceVersion(t *testing.T) {
	f := newFixture(t)
	a := f.save("a", "")
	f.save("b", "a")
	f.freeze()
	if got := f.answer("b", chain.WalkOptions{MaxDepth: 64}); got != "says a, says b" {
		t.Fatal(got)
	}
	version := f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output("says a anew") })
	if got := f.answerSince(version, "b", chain.WalkOptions{MaxDepth: 64}); got != "says a anew, says b" {
		t.Errorf("at the new resource version: got %q", got)
	}
	f.delete(a)
	if got := f.answerSince(version+1, "b", chain.WalkOptions{MaxDepth: 64}); got != "session.chain.not_found at a" {
		t.Errorf("after the deletion: got %q", got)
	}
}

// TestResolveWithStaleView: if the watch has received nothing for too long, even a cached history is confirmed.
func TestResolveWithStaleView(t *testing.T) {
	f := newFixture(t)
	f.silence = time.Second
	a := f.save("a", "")
	f.save("b", "a")
	f.freeze()
	if got := f.answer("b", chain.WalkOptions{MaxDepth: 64}); got != "says a, says b" {
		t.Fatal(got)
	}
	f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output("says a anew") })
	testutil.Eventually(t, func(context.Context) error {
		if !f.view.IsStale() {
			return fmt.Errorf("the view last received something %s ago", f.view.Age())
		}
		return nil
	})
	if got := f.answer("b", chain.WalkOptions{MaxDepth: 64}); got != "says a anew, says b" {
		t.Errorf("with a stale view: got %q", got)
	}
}

func TestResolveErrors(t *testing.T) {
	f := newFixture(t)
	f.save("a", "")
	f.freeze()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.resolver.Resolve(ctx, f.namespace, "b", 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the context's", err)
	}

	unprivileged, err := env.ConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubeclient.New(unprivileged)
	if err != nil {
		t.Fatal(err)
	}
	f.reader.SetClient(client)
	if _, err := f.resolver.Resolve(t.Context(), f.namespace, "a", 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}}); !apierrors.IsForbidden(err) {
		t.Errorf("error is %v, want the API server's", err)
	}
}
