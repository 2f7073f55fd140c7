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
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestTooLarge: a turn above the limit is rejected before anything is written.
func TestTooLarge(t *testing.T) {
	s := open(t, kube.Options{MaxTurnBytes: 1 << 20})
	err := s.Save(t.Context(), largeTurn("resp_1", ""), store.SaveOptions{})
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if err := nothingStored(t, s.Namespace()); err != nil {
		t.Error(err)
	}
}

// TestLargestTurn: a turn of exactly the limit can be read.
func TestLargestTurn(t *testing.T) {
	turn := testturn.Make("resp_1", "")
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	turn.Request = fmt.Appendf(nil, `{"input":"%s"}`, base64.StdEncoding.EncodeToString(noise))
	s := open(t, kube.Options{MaxTurnBytes: len(turn.Request) + len(turn.Response)})
	save(t, s, turn)
	if got, err := s.Get(t.Context(), "resp_1"); err != nil || !cmp.Equal(turn, got, sameSession) {
		t.Errorf("the turn differs: %v", err)
	}
}

// TestModelName: the model is copied to an object without bodies if it is short enough for a name.
func TestModelName(t *testing.T) {
	s := open(t, kube.Options{InlineBytes: -1})
	for model, want := range map[string]string{
		`"m"`:                                  `{"model":"m"}`,
		`"` + strings.Repeat("m", 2<<20) + `"`: ``,
	} {
		id := fmt.Sprintf("resp_%d", len(model))
		turn := testturn.Make(id, "")
		turn.Request = fmt.Appendf(nil, `{"model":%s}`, model)
		save(t, s, turn)
		got := ""
		if request := object(t, s.Namespace(), id).Spec.Request; request != nil {
			got = string(request.Raw)
		}
		if got != want {
			t.Errorf("got %.100s, want %s", got, want)
		}
	}
}

// TestInlineLimit: bodies of up to the limit are stored in the object, whatever they contain.
func TestInlineLimit(t *testing.T) {
	noise := make([]byte, v1alpha1.MaxPackedBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	text := base64.StdEncoding.EncodeToString(noise)
	for name, tc := range map[string]struct {
		inlineBytes, size int
		text              string
		wantInline        bool
	}{
		"default limit":         {0, kube.DefaultInlineBytes, text, true},
		"above the limit":       {0, kube.DefaultInlineBytes + 1, text, false},
		"largest limit":         {v1alpha1.MaxPackedBytes, v1alpha1.MaxPackedBytes, text, true},
		"above any limit":       {v1alpha1.MaxPackedBytes, v1alpha1.MaxPackedBytes + 1, text, false},
		"nothing in the object": {-1, 300, text, false},
		"much smaller packed":   {0, kube.DefaultInlineBytes, strings.Repeat("<", kube.DefaultInlineBytes), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, kube.Options{InlineBytes: tc.inlineBytes})
			turn := testturn.Make("resp_1", "")
			const request = `{"input":"%s"}`
			turn.Request = fmt.Appendf(nil, request, tc.text[:tc.size-len(turn.Response)-len(request)+len("%s")])
			save(t, s, turn)
			if inline := object(t, s.Namespace(), "resp_1").Spec.Snapshot == nil; inline != tc.wantInline {
				t.Errorf("stored in the object: %t, want %t", inline, tc.wantInline)
			}
			testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
			if got, err := s.Get(t.Context(), "resp_1"); err != nil || !cmp.Equal(turn, got, sameSession) {
				t.Errorf("the turn differs: %v", err)
			}
			if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
