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
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const stallTimeout = 5 * time.Minute

// TestStall: the operator is unhealthy if all its workers have been busy for too long, and healthy again once one of them has
// finished. One worker is enough.
func TestStall(t *testing.T) {
	settle(t, metav1.NamespaceAll)
	registry := prometheus.NewRegistry()
	registry.MustRegister(op.reconciler)
	want := func(wantStalled time.Duration, wantErr string) {
		t.Helper()
		stalled := sum(t, registry, "catena_reconciles_stalled_seconds", func(map[string]string) bool { return true })
		if stalled != wantStalled.Seconds() {
			t.Errorf("stalled for %g seconds, want %g", stalled, wantStalled.Seconds())
		}
		if err := op.reconciler.Healthy(nil); (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("got %v, want %q", err, wantErr)
		}
	}
	add := func() { create(t, turn(env.NewNamespace(t), "t")) } // one namespace can use only half of the workers
	release := op.writes.hold()
	defer release()
	defer op.clock.SetTime(startTime)

	for range workers - 1 {
		add()
	}
	wantWaiting(t, workers-1)
	op.clock.SetTime(startTime.Add(time.Hour))
	want(0, "") // one is free

	add()
	add() // waits
	wantWaiting(t, workers)
	want(0, "")
	op.clock.SetTime(startTime.Add(time.Hour + stallTimeout))
	want(stallTimeout, "")
	op.clock.SetTime(startTime.Add(time.Hour + stallTimeout + time.Second))
	want(stallTimeout+time.Second, "all 16 workers are busy, and none has finished for 5m1s")

	release()
	settle(t, metav1.NamespaceAll)
	want(0, "")
}
