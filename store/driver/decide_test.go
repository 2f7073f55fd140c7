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

package driver_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/catena-dev/catena/store/driver"
)

func TestDecide(t *testing.T) {
	stored := func(change ...func(*driver.Stored)) *driver.Stored {
		s := &driver.Stored{PreviousResponseID: "resp_0"}
		for _, c := range change {
			c(s)
		}
		return s
	}
	same := func(s *driver.Stored) { s.SameContent = true }
	immutable := func(s *driver.Stored) { s.Immutable = true }
	reparented := func(s *driver.Stored) { s.PreviousResponseID = "resp_9" }
	const conflict = driver.Decision("")
	for name, tc := range map[string]struct {
		stored    *driver.Stored
		changed   bool
		overwrite bool
		want      driver.Decision
	}{
		"new":                             {nil, false, false, driver.Create},
		"new, overwrite":                  {nil, false, true, driver.Create},
		"new, version of another store":   {nil, true, false, driver.Create},
		"deleted since it was read":       {nil, true, true, conflict},
		"same":                            {stored(same), false, false, driver.Keep},
		"same, overwrite":                 {stored(same), false, true, driver.Keep},
		"same, immutable":                 {stored(same, immutable), false, true, driver.Keep},
		"same, changed since it was read": {stored(same), true, true, driver.Keep},
		"taken":                           {stored(), false, false, conflict},
		"taken since it was read":         {stored(), true, false, conflict},
		"overwritten":                     {stored(), false, true, driver.Replace},
		"overwritten since it was read":   {stored(), true, true, conflict},
		"immutable":                       {stored(immutable), false, true, conflict},
		"different parent":                {stored(reparented), false, true, conflict},
	} {
		t.Run(name, func(t *testing.T) {
			session := &driver.Session{ResponseID: "resp_1", PreviousResponseID: "resp_0"}
			got, err := driver.Decide(tc.stored, tc.changed, session, driver.SaveOptions{Overwrite: tc.overwrite})
			if got != tc.want || errors.Is(err, driver.ErrConflict) != (tc.want == conflict) {
				t.Errorf("got %q and %v, want %q", got, err, tc.want)
			}
			existing, err := driver.Decide(tc.stored, tc.changed, session, driver.SaveOptions{Overwrite: tc.overwrite, Existing: true})
			if tc.stored != nil && existing != tc.want || tc.stored == nil && !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("with Existing: got %q and %v", existing, err)
			}
		})
	}
}

// TestDecideProperties checks invariants of all decisions.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session := &driver.Session{
			ResponseID:         "resp_1",
			PreviousResponseID: rapid.SampledFrom([]string{"", "resp_0"}).Draw(t, "parent"),
		}
		options := driver.SaveOptions{Overwrite: rapid.Bool().Draw(t, "overwrite")}
		var stored *driver.Stored
		if rapid.Bool().Draw(t, "exists") {
			stored = &driver.Stored{
				PreviousResponseID: rapid.SampledFrom([]string{"", "resp_0"}).Draw(t, "stored parent"),
				Immutable:          rapid.Bool().Draw(t, "immutable"),
				SameContent:        rapid.Bool().Draw(t, "same content"),
			}
		}
		changed := rapid.Bool().Draw(t, "changed")
		decision, err := driver.Decide(stored, changed, session, options)
		if (err == nil) == (decision == "") {
			t.Fatalf("got %q and %v: want a decision or an error", decision, err)
		}
		if err != nil && (!errors.Is(err, driver.ErrConflict) || driver.IsRetryable(err)) {
			t.Fatalf("got %v, want a conflict that no retry resolves", err)
		}
		switch {
		case decision == driver.Create && stored != nil:
			t.Fatal("Create although a turn is stored")
		case decision == driver.Keep && !stored.SameContent:
			t.Fatal("Keep although the content differs")
		case decision != driver.Keep && stored != nil && stored.SameContent:
			t.Fatal("the same content must be a success without a write")
		case decision != driver.Replace:
		case !options.Overwrite, stored.Immutable, stored.PreviousResponseID != session.PreviousResponseID, changed:
			t.Fatalf("Replace %+v with %+v", stored, session)
		}
	})
}
