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

// TestLargeBodiesTakeTurns: while a large body of a tenant is parsed, its next one waits, but no small one and no other tenant
// does.
func TestLargeBodiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, turns := &Gateway{parses: fair.NewBudget(2)}, memory.New(memory.Options{})
		try := func(tenant string, size int, work func() (int, error)) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := inTurn(ctx, g, &call{store: turns.InNamespace(tenant)}, size, work)
			if err == nil && got != 1 {
				t.Errorf("got %d, want the result of the work", got)
			}
			return err
		}
		proceed, done := make(chan struct{}), func() (int, error) { return 1, nil }
		blocked := func() (int, error) { <-proceed; return 1, nil }
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
			if err := try(tc.tenant, tc.size, done); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", name, err, tc.want)
			}
		}
		close(proceed)
		synctest.Wait()
		if err := try("a", largeBody, done); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if used := g.parses.Used(); used != 0 {
			t.Errorf("%d parses are still counted", used)
		}
	})
}
