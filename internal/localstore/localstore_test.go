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

package localstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
)

func session(change ...func(*store.Session)) *store.Session {
	s := &store.Session{ResponseID: "resp_1", PreviousResponseID: "resp_0", Status: store.StatusCompleted, Request: json.RawMessage(`{"input":"a"}`)}
	for _, c := range change {
		c(s)
	}
	return s
}

func TestPrepare(t *testing.T) {
	caller := session(func(s *store.Session) { s.CreatedAt = time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)) })
	got, err := Prepare(t.Context(), caller, store.SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC); got.CreatedAt != want || !got.CompletedAt.IsZero() {
		t.Errorf("times %v and %v", got.CreatedAt, got.CompletedAt)
	}
	if got.Request[2] = 'x'; string(caller.Request) != `{"input":"a"}` {
		t.Error("the caller's session was changed")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	unexpected := "resp_9"
	for name, tc := range map[string]struct {
		ctx     context.Context
		session *store.Session
		options store.SaveOptions
		want    error
	}{
		"invalid comes first": {cancelled, session(func(s *store.Session) { s.Status = "" }), store.SaveOptions{ExpectedPreviousResponseID: &unexpected}, store.ErrInvalid},
		"then the parent":     {cancelled, session(), store.SaveOptions{ExpectedPreviousResponseID: &unexpected}, store.ErrConflict},
		"then the context":    {cancelled, session(), store.SaveOptions{}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Prepare(tc.ctx, tc.session, tc.options); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	failed := func(s *store.Session) { s.Status = store.StatusFailed }
	version := func(v string) func(*store.Session) { return func(s *store.Session) { s.Version = v } }
	stored := &Turn{Session: session(version("v1")), UID: "u1"}
	final := &Turn{Session: session(version("v1"), func(s *store.Session) { s.Immutable = true }), UID: "u1"}
	const none, same, replaced, conflict = "new", "same", "replaced", "conflict"
	for name, tc := range map[string]struct {
		current   *Turn
		next      *store.Session
		overwrite bool
		want      string
	}{
		"new":                               {nil, session(), false, none},
		"new, to overwrite":                 {nil, session(), true, none},
		"gone, to overwrite":                {nil, session(version("v1")), true, conflict},
		"gone, with a version nobody needs": {nil, session(version("v1")), false, none},
		"same":                              {stored, session(), false, same},
		"same, of another version":          {stored, session(version("v0")), true, same},
		"same, immutable":                   {final, session(func(s *store.Session) { s.Immutable = true }), true, same},
		"taken":                             {stored, session(failed), false, conflict},
		"overwritten":                       {stored, session(failed), true, replaced},
		"overwritten, as read":              {stored, session(failed, version("v1")), true, replaced},
		"overwritten since":                 {stored, session(failed, version("v0")), true, conflict},
		"immutable":                         {final, session(failed), true, conflict},
		"immutable, made mutable":           {final, session(), true, conflict},
		"another parent":                    {stored, session(func(s *store.Session) { s.PreviousResponseID = "resp_9" }), true, conflict},
		"no parent any more":                {stored, session(func(s *store.Session) { s.PreviousResponseID = "" }), true, conflict},
		"made immutable":                    {stored, session(func(s *store.Session) { s.Immutable = true }), true, replaced},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decide(tc.current, tc.next, store.SaveOptions{Overwrite: tc.overwrite})
			outcome := ""
			switch {
			case errors.Is(err, store.ErrConflict):
				outcome = conflict
			case err != nil:
				t.Fatal(err)
			case got == tc.current:
				outcome = same
			case tc.current == nil && got.UID != "" && got.Version != "" && got.Version != "v1":
				outcome = none
			case got.UID == tc.current.UID && got.Version != tc.current.Version && got.Session == tc.next:
				outcome = replaced
			}
			if outcome != tc.want {
				t.Errorf("got %q, want %q", outcome, tc.want)
			}
		})
	}
}

// TestResolveDepth: which of the limits counts.
func TestResolveDepth(t *testing.T) {
	// A chain without end: every number follows from the one before.
	endless := func(_ context.Context, id string) (*Turn, error) {
		n := 0
		if _, err := fmt.Sscanf(id, "resp_%d", &n); err != nil {
			return nil, err
		}
		return &Turn{Session: session(func(s *store.Session) { s.ResponseID, s.PreviousResponseID = id, fmt.Sprintf("resp_%d", n+1) }), UID: "u"}, nil
	}
	three := 3
	for name, tc := range map[string]struct {
		maxDepth int
		options  store.ResolveOptions
		want     string // the turn at which the limit is passed
	}{
		"the default":         {0, store.ResolveOptions{}, "resp_64"},
		"the store's":         {5, store.ResolveOptions{}, "resp_5"},
		"the request's":       {5, store.ResolveOptions{MaxDepth: &three}, "resp_3"},
		"never more than all": {20_000, store.ResolveOptions{}, "resp_10000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Resolve(t.Context(), "resp_0", tc.options, tc.maxDepth, endless)
			e, ok := errors.AsType[*store.Error](err)
			if !ok || e.Code != store.CodeDepthExceeded {
				t.Fatalf("got %v, want the depth to be exceeded", err)
			}
			if diff := cmp.Diff([]string{tc.want, "resp_0"}, []string{e.ResponseID, e.PreviousResponseID}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestResolveFailure: what the store could not do is not taken for a chain that is broken.
func TestResolveFailure(t *testing.T) {
	broken := errors.New("the disk is gone")
	_, err := Resolve(t.Context(), "resp_0", store.ResolveOptions{}, 0, func(context.Context, string) (*Turn, error) { return nil, broken })
	if _, ok := errors.AsType[*store.Error](err); ok || !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
