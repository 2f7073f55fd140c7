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
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/testutil"
)

const stallTimeout = 5 * time.Minute

// TestStall: the operator is unhealthy if one of its workers has been busy for too long, and healthy again once that has finished.
func TestStall(t *testing.T) {
	settle(t, metav1.NamespaceAll)
	want := func(wantErr string) {
		t.Helper()
		if err := op.reconciler.Healthy(nil); (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("got %v, want %q", err, wantErr)
		}
	}
	release := op.writes.hold()
	defer release()
	defer op.clock.SetTime(startTime)
	op.clock.SetTime(startTime.Add(time.Hour))
	want("") // no worker is busy

	create(t, turn(env.NewNamespace(t), "a"))
	wantWaiting(t, 1)
	op.clock.SetTime(startTime.Add(time.Hour + stallTimeout))
	create(t, turn(env.NewNamespace(t), "b"))
	wantWaiting(t, 2)
	want("")
	op.clock.SetTime(startTime.Add(time.Hour + stallTimeout + time.Second))
	want("session: one has been reconciled for 5m1s")

	release()
	settle(t, metav1.NamespaceAll)
	want("")
}

// TestQuotaStall: so it is if the status of a SessionQuota takes too long.
func TestQuotaStall(t *testing.T) {
	settle(t, metav1.NamespaceAll)
	release := op.writes.hold()
	defer release()
	defer op.clock.SetTime(startTime)
	ns := env.NewNamespace(t)
	if err := env.Client.Create(t.Context(), newQuota(ns, "quota", "1Mi")); err != nil {
		t.Fatal(err)
	}
	wantWaiting(t, 1)
	op.clock.SetTime(startTime.Add(stallTimeout))
	if err := op.quotas.Healthy(nil); err != nil {
		t.Errorf("got %v before the timeout", err)
	}
	op.clock.SetTime(startTime.Add(stallTimeout + time.Second))
	if err := op.quotas.Healthy(nil); err == nil || !strings.Contains(err.Error(), "SessionQuota: one has been reconciled for 5m1s") {
		t.Errorf("got %v", err)
	}
	release()
	testutil.Eventually(t, func(context.Context) error { return op.quotas.Healthy(nil) })
}

// TestStandstill: sessions that wait while no reconcile starts are noticed, however long none had to start before.
func TestStandstill(t *testing.T) {
	p := &controllers.Progress{}
	for _, tc := range []struct {
		minute, waiting int
		starts          bool
		want            time.Duration
	}{
		{minute: 0, waiting: 0},
		{minute: 60, waiting: 1},
		{minute: 66, waiting: 2, want: 6 * time.Minute},
		{minute: 67, waiting: 2, starts: true},
		{minute: 69, waiting: 1, want: 2 * time.Minute},
		{minute: 70, waiting: 0},
		{minute: 80, waiting: 3},
	} {
		now := startTime.Add(time.Duration(tc.minute) * time.Minute)
		if tc.starts {
			p.Start(now)
		}
		if got := p.Standstill(now, tc.waiting); got != tc.want {
			t.Errorf("minute %d: got %s, want %s", tc.minute, got, tc.want)
		}
	}
}
