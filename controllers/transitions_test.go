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
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/testutil"
)

// event is the content of an event and the name of its session.
type event struct {
	Regarding, Type, Reason, Note string
}

// TestTransitions: each time a chain breaks or heals, there is one event and one count, and none otherwise.
func TestTransitions(t *testing.T) {
	ns := env.NewNamespace(t)
	settle(t)
	counted := transitionCounts(t)
	want := map[event]int{}
	check := func(broken, intact float64, events ...event) {
		t.Helper()
		settle(t, ns)
		for _, e := range events {
			want[e]++
		}
		wantEvents(t, ns, want)
		counted["broken"] += broken
		counted["intact"] += intact
		if diff := cmp.Diff(counted, transitionCounts(t)); diff != "" {
			t.Errorf("catena_chain_transitions_total (-want +got):\n%s", diff)
		}
	}
	brokenEvent := func(name, note string) event { return event{name, "Warning", "ChainBroken", note} }
	healedEvent := func(name string) event {
		return event{name, "Normal", "ChainHealed", "Resolved: Every turn up to the root is stored and completed."}
	}

	create(t, turn(ns, "a"))
	check(0, 0)

	// A session that is broken from the start.
	create(t, turn(ns, "c_1", "b"))
	check(1, 0, brokenEvent("c.1", `ParentNotFound: Response "b", an ancestor of "c_1", was not found.`))

	// A change of the reason is not a transition, and neither is pending after intact.
	b := turn(ns, "b", "a")
	b.Spec.ResponseStatus = v1alpha1.ResponseStatusFailed
	create(t, b)
	check(1, 0, brokenEvent("b", `TurnNotCompleted: Response "b" is "failed", not completed, and cannot be used as context.`))

	overwrite(t, ns, "b", `{"responseStatus":"completed"}`)
	check(0, 2, healedEvent("b"), healedEvent("c.1"))

	overwrite(t, ns, "b", `{"responseStatus":"in_progress"}`)
	check(0, 0)
	overwrite(t, ns, "b", `{"responseStatus":"completed"}`)
	check(0, 0)

	remove(t, ns, "a")
	check(2, 0, brokenEvent("b", `ParentNotFound: Response "a", an ancestor of "b", was not found.`),
		brokenEvent("c.1", `ParentNotFound: Response "a", an ancestor of "c_1", was not found.`))

	// A restart repeats no event.
	restartOperator(t, func() {})
	check(0, 0)
	create(t, turn(ns, "a"))
	check(0, 2, healedEvent("b"), healedEvent("c.1"))

	// A broken chain that waits for a turn has not healed.
	overwrite(t, ns, "c_1", `{"responseStatus":"failed"}`)
	check(1, 0, brokenEvent("c.1", `TurnNotCompleted: Response "c_1" is "failed", not completed, and cannot be used as context.`))
	counted["pending"]++
	overwrite(t, ns, "c_1", `{"responseStatus":"in_progress"}`)
	check(0, 0, event{"c.1", "Normal", "ChainPending", `TurnPending: Response "c_1" is "in_progress" and cannot be used as context until it is completed.`})
}

func transitionCounts(t *testing.T) map[string]float64 {
	t.Helper()
	counts := map[string]float64{}
	for _, to := range []string{"broken", "intact", "pending"} {
		counts[to] = sum(t, metrics.Registry, "catena_chain_transitions_total", func(labels map[string]string) bool {
			return labels["to"] == to
		})
	}
	return counts
}

// wantEvents waits until a namespace has exactly these events.
func wantEvents(t *testing.T, namespace string, want map[event]int) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		events := &eventsv1.EventList{}
		if err := env.Client.List(t.Context(), events, client.InNamespace(namespace)); err != nil {
			return err
		}
		got := map[event]int{}
		for _, e := range events.Items {
			count := 1
			if e.Series != nil {
				count = int(e.Series.Count)
			}
			got[event{e.Regarding.Name, e.Type, e.Reason, e.Note}] += count
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestEventNamesTheSession: `kubectl describe` finds events by the kind and UID that they regard.
func TestEventNamesTheSession(t *testing.T) {
	ns := env.NewNamespace(t)
	b := turn(ns, "b", "a")
	create(t, b)
	testutil.Eventually(t, func(context.Context) error {
		events := &eventsv1.EventList{}
		if err := env.Client.List(t.Context(), events, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(events.Items) != 1 {
			return fmt.Errorf("%d events, want 1", len(events.Items))
		}
		e := events.Items[0]
		if e.Regarding.UID != b.UID || e.Regarding.Kind != "ResponseSession" || e.Regarding.APIVersion != "sessions.catena.dev/v1alpha1" {
			return fmt.Errorf("the event regards %+v", e.Regarding)
		}
		return nil
	})
}

// TestSessionsGauge: catena_sessions follows the sessions.
func TestSessionsGauge(t *testing.T) {
	ns := env.NewNamespace(t)
	registry := prometheus.NewRegistry()
	if err := registry.Register(op.view); err != nil {
		t.Fatal(err)
	}
	count := func() map[string]float64 {
		counts := map[string]float64{}
		for reason := range op.view.Counts() {
			counts[reason] = sum(t, registry, "catena_sessions", func(labels map[string]string) bool { return labels["reason"] == reason })
		}
		return counts
	}
	want := count()
	check := func(changes map[string]float64) {
		t.Helper()
		for reason, change := range changes {
			want[reason] += change
		}
		testutil.Eventually(t, func(context.Context) error {
			if diff := cmp.Diff(want, count()); diff != "" {
				return fmt.Errorf("catena_sessions (-want +got):\n%s", diff)
			}
			return nil
		})
	}
	misnamed := turn(ns, "Misnamed")
	misnamed.Name = v1alpha1.ObjectName("Other")
	create(t, turn(ns, "a"), turn(ns, "b", "a"), turn(ns, "c", "b"), turn(ns, "orphan", "missing"), misnamed)
	check(map[string]float64{"Resolved": 3, "ParentNotFound": 1, "NameMismatch": 1})
	overwrite(t, ns, "b", `{"responseStatus":"in_progress"}`)
	check(map[string]float64{"Resolved": -2, "TurnPending": 2})
	settle(t, ns)
	deleteWith(t, ns, "a", metav1.DeletePropagationBackground)
	check(map[string]float64{"Resolved": -1, "TurnPending": -2})
}

// TestEventLimiter: one namespace can have half of the events of ten seconds, and others those that are left. Events no longer count after
// ten seconds.
func TestEventLimiter(t *testing.T) {
	allowed := func(l *controllers.EventLimiter, namespace string) (events int) {
		for range 1000 {
			if l.Allow(namespace) {
				events++
			}
		}
		return events
	}
	synctest.Test(t, func(t *testing.T) {
		l := controllers.NewEventLimiter(10)
		for range 2 {
			for _, tc := range []struct {
				namespace string
				want      int
			}{{"flapping", 50}, {"a", 25}, {"flapping", 0}, {"b", 12}} {
				if got := allowed(l, tc.namespace); got != tc.want {
					t.Errorf("%s: got %d events, want %d", tc.namespace, got, tc.want)
				}
			}
			<-time.After(10 * time.Second)
			synctest.Wait()
		}
	})
	for rate, want := range map[float64]int{0: 0, 0.01: 1, 1e300: 1000} {
		if got := allowed(controllers.NewEventLimiter(rate), "a"); got != want {
			t.Errorf("%g per second: got %d events, want %d", rate, got, want)
		}
	}
}
