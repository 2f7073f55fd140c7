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

package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/internal/operator/sessions"
)

// refusing is a client of an API server that has every object, with one UID, and refuses all changes.
type refusing struct {
	client.Client
	patches int
	answer  error
}

func (c *refusing) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetUID("5f0c1b2a-0000-4000-8000-000000000001")
	return nil
}

func (c *refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	c.patches++
	return c.answer
}

// TestRefusedOwner: a session whose ownerReference the API server refuses, as its owner can cause, is tried again less and less often, however
// often it has to wait for the pace of rewrites in between.
func TestRefusedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &refusing{answer: apierrors.NewForbidden(schema.GroupResource{Resource: "responsesessions"}, "b", nil)}
		r := &ResponseSessionReconciler{Client: c, Live: c, Clock: clock.RealClock{}, Statuses: DefaultStatusLimits()}
		r.prepare()
		object := func(name string) sessions.Object {
			return sessions.Object{Namespace: "team-a", Name: name, ObjectBytes: 1 << 20}
		}
		verdict := sessions.Verdict{Record: &sessions.Record{Object: object("b")}, Parent: &sessions.Record{Object: object("a")}}
		for begin := time.Now(); time.Since(begin) < 24*time.Hour; {
			attempts := c.patches
			wait, err := r.reconcileOwner(t.Context(), verdict, true)
			if refused := c.patches > attempts; refused != (err != nil) || refused == (wait > 0) {
				t.Fatalf("got %s and %v, refused: %t", wait, err, refused)
			}
			time.Sleep(wait) //nolint:forbidigo // in a bubble, it takes no time
		}
		if most := 30 + int(24*time.Hour/maxOwnerBackoff); c.patches > most {
			t.Errorf("%d attempts in a day, want at most %d", c.patches, most)
		}
		changed := *verdict.Record
		changed.ResourceVersion++
		verdict.Record = &changed
		if wait, err := r.reconcileOwner(t.Context(), verdict, false); err != nil || wait == 0 {
			t.Errorf("a changed session with a large parent waits for %s, error %v", wait, err)
		}
		verdict.Parent = &sessions.Record{Object: sessions.Object{Namespace: "team-a", Name: "a", ObjectBytes: 1 << 10}}
		c.answer = apierrors.NewInternalError(errors.New("unavailable"))
		if wait, err := r.reconcileOwner(t.Context(), verdict, false); err == nil {
			t.Errorf("a changed session waits for %s", wait)
		}
		for range 3 { // for what is not refused, the wait has another limit
			wait, _ := r.reconcileOwner(t.Context(), verdict, false)
			if wait > maxBackoff {
				t.Errorf("the session waits for %s, want at most %s", wait, maxBackoff)
			}
			time.Sleep(wait) //nolint:forbidigo // see above
		}
	})
}

// TestIsRefusal: what the API server would refuse again, which must not keep others waiting.
func TestIsRefusal(t *testing.T) {
	resource := schema.GroupResource{Resource: "responsesessions"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"forbidden":         {apierrors.NewForbidden(resource, "b", nil), true},
		"changed":           {apierrors.NewConflict(resource, "b", nil), false},
		"overloaded":        {apierrors.NewTooManyRequests("later", 1), false},
		"unavailable":       {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), false},
		"no room in etcd":   {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), true},
		"not an API server": {errors.New("connection refused"), false},
	} {
		if got := isRefusal(tc.err); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
