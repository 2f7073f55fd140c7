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

package storetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testDigests: each turn of a chain has a digest of everything that it has, whatever the options select, and only an overwrite of that turn
// changes it.
func testDigests(t *testing.T, s *suite) {
	st := s.newStore(t)
	for i, turn := range []struct{ request, response string }{
		{`{"instructions":"be brief","input":"hi"}`, `{"output":[{ "n" : 1.0 }, {"text":"é\u00e9"}]}`},
		{`{}`, `{}`},
		{`{"instructions":"","input":[{"n":12345678901234567890}]}`, `{"output":[]}`},
		{`{"instructions":"be kind"}`, `{"output":[{"text":"` + strings.Repeat("x", 1<<21) + `"}]}`}, // stored outside its object
		{`{"instructions":"only these"}`, `{}`},
	} {
		next := testturn.Make(fmt.Sprint("t", i), "")
		if i > 0 {
			next.PreviousResponseID = fmt.Sprint("t", i-1)
		}
		next.Request, next.Response = []byte(turn.request), []byte(turn.response)
		save(t, st, next, store.SaveOptions{})
	}
	whole := resolve(t, st, "t4", store.ResolveOptions{Digests: true, Origins: true})
	want := digestsOf(whole)
	if diff := cmp.Diff(want, whole.Digests); diff != "" {
		t.Errorf("digests (-want,+got):\n%s", diff)
	}
	// Every store of the same bodies has the same digests.
	const first = "sha256:b037139ee1e498353ffba7f7dddfe2e0769d398f39854b8e7041ca6407576bd6"
	if whole.Digests[0] != first {
		t.Errorf("the digest of the first turn is %s, want %s", whole.Digests[0], first)
	}
	for name, options := range map[string]store.ResolveOptions{
		"page":                       {Limit: 1},
		"last page":                  {Limit: 1, Order: store.OrderDescending},
		"no instructions":            {Instructions: store.InstructionsOmit},
		"last instructions, reverse": {Instructions: store.InstructionsLast, Order: store.OrderDescending},
	} {
		t.Run(name, func(t *testing.T) {
			options.Digests = true
			if diff := cmp.Diff(want, resolve(t, st, "t4", options).Digests); diff != "" {
				t.Errorf("digests (-want,+got):\n%s", diff)
			}
		})
	}
	if got := resolve(t, st, "t4", store.ResolveOptions{}).Digests; got != nil {
		t.Errorf("got the digests %q, which were not requested", got)
	}
	if diff := cmp.Diff(want[:3], resolve(t, st, "t2", store.ResolveOptions{Digests: true}).Digests); diff != "" {
		t.Errorf("digests of a part of the chain (-want,+got):\n%s", diff)
	}

	changed := testturn.Make("t1", "t0")
	save(t, st, changed, store.SaveOptions{Overwrite: true})
	got := resolve(t, st, "t4", store.ResolveOptions{Digests: true, Origins: true, Version: changed.Version})
	if diff := cmp.Diff(digestsOf(got), got.Digests); diff != "" {
		t.Errorf("digests after an overwrite (-want,+got):\n%s", diff)
	}
	if got.Digests[1] == want[1] {
		t.Error("the overwrite has not changed the digest of its turn")
	}
	got.Digests[1] = want[1]
	if diff := cmp.Diff(want, got.Digests); diff != "" {
		t.Errorf("an overwrite has changed the digests of other turns (-want,+got):\n%s", diff)
	}
}

// digestsOf returns the digests of the turns of a whole history with all instructions and with origins.
func digestsOf(h *store.History) []string {
	entries := map[string][][]byte{}
	items := h.Items
	for _, o := range h.Origins {
		for _, item := range items[:o.Count] {
			entries[o.ResponseID] = append(entries[o.ResponseID], item)
		}
		items = items[o.Count:]
	}
	var digests []string
	for _, turn := range h.Turns {
		sum := sha256.Sum256(fmt.Appendf(nil, "[%s]", bytes.Join(entries[turn], []byte(","))))
		digests = append(digests, "sha256:"+hex.EncodeToString(sum[:]))
	}
	return digests
}
