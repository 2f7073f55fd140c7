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
	"testing"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

func TestChainErrors(t *testing.T) {
	namespace, other := env.NewNamespace(t), env.NewNamespace(t)
	create := func(id, previous, status string) {
		testsession.Make(namespace, id).After(previous).Status(status).Create(t, env.Client)
	}
	const completed = v1alpha1.ResponseStatusCompleted
	create("resp_orphan", "resp_gone", completed)
	create("resp_orphan_child", "resp_orphan", completed)
	create("resp_cycle_a", "resp_cycle_b", completed)
	create("resp_cycle_b", "resp_cycle_a", completed)
	create("resp_into_cycle", "resp_cycle_a", completed)
	create("resp_foreign", "resp_elsewhere", completed)
	testsession.Make(other, "resp_elsewhere").Create(t, env.Client)
	for _, status := range []string{"queued", "in_progress", "incomplete", "failed", "cancelled", "paused"} {
		create("resp_"+status, "", status)
		create("resp_after_"+status, "resp_"+status, completed)
	}
	create("resp_in_cycle_failed", "resp_cycle_failed", completed)
	create("resp_cycle_failed", "resp_in_cycle_failed", "failed")
	testsession.Make(namespace, "resp_unreadable").Request(`{"instructions":["a","list"]}`).Create(t, env.Client)
	create("resp_after_unreadable", "resp_unreadable", completed)
	testsession.Make(namespace, "resp_unreadable_queued").Request(`{"input":5}`).Status("queued").Create(t, env.Client)

	cases := map[string]struct {
		id, query string
		want      chainError
	}{
		"head missing":                  {id: "resp_none", want: notFound("resp_none")},
		"head missing, hashed name":     {id: "Resp None", want: notFound("Resp None")},
		"head in another namespace":     {id: "resp_elsewhere", want: notFound("resp_elsewhere")},
		"parent missing":                {id: "resp_orphan", want: invalid(chain.CodeNotFound, "resp_gone")},
		"ancestor missing":              {id: "resp_orphan_child", want: invalid(chain.CodeNotFound, "resp_gone")},
		"parent in another namespace":   {id: "resp_foreign", want: invalid(chain.CodeNotFound, "resp_elsewhere")},
		"cycle":                         {id: "resp_cycle_a", want: invalid(chain.CodeCycleDetected, "resp_cycle_a")},
		"ancestor on a cycle":           {id: "resp_into_cycle", want: invalid(chain.CodeCycleDetected, "resp_cycle_a")},
		"cycle, includeIncomplete":      {id: "resp_cycle_a", query: "includeIncomplete=true", want: invalid(chain.CodeCycleDetected, "resp_cycle_a")},
		"status before cycle":           {id: "resp_in_cycle_failed", want: unavailable("resp_cycle_failed")},
		"cycle, failed turn included":   {id: "resp_in_cycle_failed", query: "includeIncomplete=true", want: invalid(chain.CodeCycleDetected, "resp_in_cycle_failed")},
		"depth":                         {id: "resp_orphan_child", query: "maxDepth=1", want: invalid(chain.CodeDepthExceeded, "resp_orphan")},
		"depth before missing":          {id: "resp_orphan_child", query: "maxDepth=2", want: invalid(chain.CodeDepthExceeded, "resp_gone")},
		"depth before cycle":            {id: "resp_cycle_a", query: "maxDepth=2", want: invalid(chain.CodeDepthExceeded, "resp_cycle_a")},
		"depth 0 before a missing head": {id: "resp_none", query: "maxDepth=0", want: invalid(chain.CodeDepthExceeded, "resp_none")},
		"queued":                        {id: "resp_queued", want: unavailable("resp_queued")},
		"in progress":                   {id: "resp_in_progress", want: unavailable("resp_in_progress")},
		"incomplete":                    {id: "resp_incomplete", want: unavailable("resp_incomplete")},
		"failed":                        {id: "resp_failed", want: unavailable("resp_failed")},
		"cancelled":                     {id: "resp_cancelled", want: unavailable("resp_cancelled")},
		"unknown status":                {id: "resp_paused", want: unavailable("resp_paused")},
		"ancestor in progress":          {id: "resp_after_in_progress", want: unavailable("resp_in_progress")},
		"ancestor failed":               {id: "resp_after_failed", want: unavailable("resp_failed")},
		"unreadable":                    {id: "resp_unreadable", want: invalid(chain.CodeUnreadable, "resp_unreadable")},
		"ancestor unreadable":           {id: "resp_after_unreadable", want: invalid(chain.CodeUnreadable, "resp_unreadable")},
		"status before unreadable":      {id: "resp_unreadable_queued", want: unavailable("resp_unreadable_queued")},
		"unreadable, queued included":   {id: "resp_unreadable_queued", query: "includeIncomplete=true", want: invalid(chain.CodeUnreadable, "resp_unreadable_queued")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			aggregated(t).resolve(t, namespace, tc.id, tc.query).wantChainError(t, tc.id, tc.want)
		})
	}
	for _, id := range []string{"resp_after_queued", "resp_after_incomplete", "resp_after_paused"} {
		t.Run("includeIncomplete: "+id, func(t *testing.T) {
			aggregated(t).resolve(t, namespace, id, "includeIncomplete=false").wantChainError(t, id, unavailable("resp_"+id[len("resp_after_"):]))
			turns := []string{"resp_" + id[len("resp_after_"):], id}
			h := aggregated(t).resolve(t, namespace, id, "includeIncomplete=true").history(t)
			if diff := h.check(turns, testutil.Items(turns...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
