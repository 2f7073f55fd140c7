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
	"errors"
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestSweepMetrics: sweeps are counted by their result, and the metrics show when the last one was and whether it was held off.
func TestSweepMetrics(t *testing.T) {
	bucket := newBucket(t)
	s := newSweeping(t, storeIn(bucket, "this"))
	if err := s.store.Claim(t.Context(), nil); err != nil { // the sweeper's view has sessions of other tests
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	sweeper := &controllers.SnapshotSweeper{
		View: op.view, Client: sessionClient(t, env.Config), Stores: []snapshot.Store{s.store}, Interval: time.Minute, Clock: clock, Now: timeOf(clock),
		Limits: controllers.SweepLimits{Grace: time.Hour, HoldOff: 24 * time.Hour}, Releases: controllers.NewReleases(time.Hour, clock),
	}
	value := func(name, result string) float64 {
		return sum(t, metrics.Registry, name, func(labels map[string]string) bool {
			return labels["store"] == v1alpha1.SnapshotStoreBlob && labels["result"] == result
		})
	}
	results := []string{"completed", "held_off", "refused", "failed"}
	before := map[string]float64{}
	for _, result := range results {
		before[result] = value("catena_snapshot_sweeps_total", result)
	}
	want := func(heldOff float64, counts ...float64) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			for i, result := range results {
				if got := value("catena_snapshot_sweeps_total", result) - before[result]; got != counts[i] {
					return fmt.Errorf("%g sweeps have the result %s, want %g", got, result, counts[i])
				}
			}
			if got := value("catena_snapshot_sweeps_held_off", ""); got != heldOff {
				return fmt.Errorf("catena_snapshot_sweeps_held_off is %g, want %g", got, heldOff)
			}
			if !clock.HasWaiters() {
				return errors.New("the sweeper is not waiting for its next sweep")
			}
			return nil
		})
		if got, want := value("catena_snapshot_last_sweep_timestamp_seconds", ""), clock.Now().Unix(); counts[3] == 0 && int64(got) != want {
			t.Errorf("the last sweep was at %f, want %d", got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- sweeper.Start(ctx) }()
	want(1, 0, 1, 0, 0)
	if err := bucket.WriteAll(t.Context(), "catena-sweeper", []byte("this"), nil); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	want(0, 1, 1, 0, 0)
	for i := range 101 {
		s.write(t, fmt.Sprint(i))
	}
	clock.Step(20 * time.Minute)
	want(0, 2, 1, 0, 0)
	clock.Step(time.Hour)
	want(0, 2, 1, 1, 0)
	if err := bucket.WriteAll(t.Context(), "catena-cluster", []byte("another"), nil); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	if err := <-ended; !errors.Is(err, snapshot.ErrForeign) {
		t.Errorf("the bucket belongs to another cluster: got %v", err)
	}
}
