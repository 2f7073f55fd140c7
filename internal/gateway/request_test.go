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

package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/store/memory"
)

// TestLargeBodiesAreParsedInTurns: while a large body of a tenant is parsed, its next one waits, but no small one and no other
// tenant does.
func TestLargeBodiesAreParsedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, turns := &Gateway{parses: fair.NewBudget(2)}, memory.New(memory.Options{})
		try := func(tenant string, size int, parseBody func([]byte) (int, error)) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := parse(ctx, g, &call{store: turns.InNamespace(tenant)}, make([]byte, size), parseBody)
			if err == nil && got != size {
				t.Errorf("parsed %d bytes, want %d", got, size)
			}
			return err
		}
		proceed, count := make(chan struct{}), func(body []byte) (int, error) { return len(body), nil }
		blocked := func(body []byte) (int, error) { <-proceed; return len(body), nil }
		go func() {
			if err := try("a", largeBody, blocked); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		for name, tc := range map[string]struct {
			tenant string
			size   int
			want   error
		}{
			"large body":                 {"a", largeBody, context.DeadlineExceeded},
			"small body":                 {"a", largeBody - 1, nil},
			"large body, another tenant": {"b", largeBody, nil},
		} {
			if err := try(tc.tenant, tc.size, count); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", name, err, tc.want)
			}
		}
		close(proceed)
		synctest.Wait()
		if err := try("a", largeBody, count); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if used := g.parses.Used(); used != 0 {
			t.Errorf("%d parses are still counted", used)
		}
	})
}
