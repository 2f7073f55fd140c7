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

package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/api/v1alpha1"
)

// TestFullSession: a session that leaves no room for its status is not written again until it changes, and does not slow down the
// writes of the operator.
func TestFullSession(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "root"))
	sized := func(id string, size int) *v1alpha1.ResponseSession {
		s := turn(ns, id, "root")
		s.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":"` + strings.Repeat("a", size) + `"}`)}
		return s
	}
	fits, tooLarge := 1<<20, 2<<20
	for i := 0; tooLarge-fits > 32; i++ {
		size := (fits + tooLarge) / 2
		probe := sized(fmt.Sprintf("probe%02d", i), size)
		if err := env.Client.Create(t.Context(), probe); err != nil {
			tooLarge = size
			continue
		}
		fits = size
		if err := env.Client.Delete(t.Context(), probe); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, ns)
	limit := op.limiter.Writes()
	counted := sum(t, metrics.Registry, "catena_full_sessions_total", func(map[string]string) bool { return true })
	create(t, sized("large00", fits))
	settle(t, ns)
	for range 3 { // each changes the verdict
		for _, status := range []string{"failed", "completed"} {
			overwrite(t, ns, "root", fmt.Sprintf(`{"responseStatus":%q}`, status))
			settle(t, ns)
		}
	}
	var writes []string
	for _, write := range op.writes.sessions(ns) {
		if strings.HasPrefix(write, "large") {
			writes = append(writes, write)
		}
	}
	if diff := cmp.Diff([]string{"large00", "large00/status"}, writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := op.limiter.Writes(); got < limit {
		t.Errorf("the limit of writes was reduced from %d to %d", limit, got)
	}
	if now := sum(t, metrics.Registry, "catena_full_sessions_total", func(map[string]string) bool { return true }); now != counted+1 {
		t.Errorf("%g sessions were counted, want 1", now-counted)
	}
	overwrite(t, ns, "large00", `{"request":{"input":"a"}}`)
	wantVerdicts(t, ns, map[string]verdict{"root": resolved(1, "root"), "large00": resolved(2, "root")})
}
