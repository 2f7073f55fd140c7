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

package local

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store/driver"
)

func session(change ...func(*driver.Session)) *driver.Session {
	s := testturn.Make("resp_1", "resp_0")
	for _, c := range change {
		c(s)
	}
	return s
}

func TestSave(t *testing.T) {
	failed := func(s *driver.Session) { s.Status = driver.StatusFailed }
	version := func(v string) func(*driver.Session) { return func(s *driver.Session) { s.Version = v } }
	stored := &Session{Session: session(version("v1")), UID: "u1"}
	final := &Session{Session: session(version("v1"), func(s *driver.Session) { s.Immutable = true }), UID: "u1"}
	const none, same, replaced, conflict = "new", "same", "replaced", "conflict"
	for name, tc := range map[string]struct {
		current   *Session
		next      *driver.Session
		overwrite bool
		want      string
	}{
		"new":                           {nil, session(), false, none},
		"new, to overwrite":             {nil, session(), true, none},
		"deleted, to overwrite":         {nil, session(version("v1")), true, conflict},
		"deleted, version not checked":  {nil, session(version("v1")), false, none},
		"same":                          {stored, session(), false, same},
		"same, other version":           {stored, session(version("v0")), true, same},
		"same, immutable":               {final, session(func(s *driver.Session) { s.Immutable = true }), true, same},
		"taken":                         {stored, session(failed), false, conflict},
		"overwritten":                   {stored, session(failed), true, replaced},
		"overwritten, current version":  {stored, session(failed, version("v1")), true, replaced},
		"overwritten, outdated version": {stored, session(failed, version("v0")), true, conflict},
		"immutable":                     {final, session(failed), true, conflict},
		"immutable, made mutable":       {final, session(), true, conflict},
		"different parent":              {stored, session(func(s *driver.Session) { s.PreviousResponseID = "resp_9" }), true, conflict},
		"parent removed":                {stored, session(func(s *driver.Session) { s.PreviousResponseID = "" }), true, conflict},
		"made immutable":                {stored, session(func(s *driver.Session) { s.Immutable = true }), true, replaced},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Save(tc.current, tc.next, driver.SaveOptions{Overwrite: tc.overwrite})
			outcome := ""
			switch {
			case errors.Is(err, driver.ErrConflict):
				outcome = conflict
			case err != nil:
				t.Fatal(err)
			case got == tc.current:
				outcome = same
			case tc.current == nil && got.UID != "" && got.Version != "" && got.Version != "v1":
				outcome = none
			case got.UID == tc.current.UID && got.Version != tc.current.Version && got.Status == tc.next.Status && tc.next.Version != got.Version:
				outcome = replaced
			}
			if outcome != tc.want {
				t.Errorf("got %q, want %q", outcome, tc.want)
			}
		})
	}
}

// TestResolveDepth checks which of the limits applies.
func TestResolveDepth(t *testing.T) {
	// An endless chain: the parent of each number is the next one.
	endless := func(_ context.Context, id string) (*Session, error) {
		n := 0
		if _, err := fmt.Sscanf(id, "resp_%d", &n); err != nil {
			return nil, err
		}
		return &Session{Session: session(func(s *driver.Session) { s.ResponseID, s.PreviousResponseID = id, fmt.Sprintf("resp_%d", n+1) }), UID: "u"}, nil
	}
	three := 3
	for name, tc := range map[string]struct {
		maxDepth int
		options  driver.ResolveOptions
		want     string // the turn at which the limit is exceeded
	}{
		"default":              {0, driver.ResolveOptions{}, "resp_64"},
		"limit of the store":   {5, driver.ResolveOptions{}, "resp_5"},
		"limit of the request": {5, driver.ResolveOptions{MaxDepth: &three}, "resp_3"},
		"limit of all stores":  {20_000, driver.ResolveOptions{}, "resp_10000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Resolve(t.Context(), "resp_0", tc.options, tc.maxDepth, endless)
			e, ok := errors.AsType[*driver.Error](err)
			if !ok || e.Code != driver.CodeDepthExceeded {
				t.Fatalf("got %v, want CodeDepthExceeded", err)
			}
			if diff := cmp.Diff([]string{tc.want, "resp_0"}, []string{e.ResponseID, e.PreviousResponseID}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestResolveFailure: a failure of the store is not mistaken for a broken chain.
func TestResolveFailure(t *testing.T) {
	broken := errors.New("disk failure")
	_, err := Resolve(t.Context(), "resp_0", driver.ResolveOptions{}, 0, func(context.Context, string) (*Session, error) { return nil, broken })
	if _, ok := errors.AsType[*driver.Error](err); ok || !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the getter without a code", err)
	}
}
