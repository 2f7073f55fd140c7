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
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/catena-dev/catena/controllers"
)

// releases passes on those of the operator's view, also after a restart.
var releases observers

type observers struct {
	mu  sync.Mutex
	all map[*controllers.Releases]bool
}

func (o *observers) add(namespace, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r := range o.all {
		r.Add(namespace, key)
	}
}

// observeReleases returns Releases that receive those of the operator's view until the test ends.
func observeReleases(t *testing.T, clock clock.PassiveClock) *controllers.Releases {
	r := controllers.NewReleases(time.Hour, clock)
	releases.mu.Lock()
	defer releases.mu.Unlock()
	if releases.all == nil {
		releases.all = map[*controllers.Releases]bool{}
	}
	releases.all[r] = true
	t.Cleanup(func() {
		releases.mu.Lock()
		defer releases.mu.Unlock()
		delete(releases.all, r)
	})
	return r
}

// TestReleases: the last release of a snapshot is remembered for the grace period, whatever the difference between the clocks.
func TestReleases(t *testing.T) {
	local := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	const ahead = 5 * time.Hour // of the clock that marks are made with
	r := controllers.NewReleases(time.Hour, local)
	want := func(namespace, key string, want bool, sinceMark time.Duration) {
		t.Helper()
		now := local.Now().Add(ahead)
		if got := controllers.Released(r, now, namespace, key, now.Add(-sinceMark)); got != want {
			t.Errorf("%s/%s was released after a mark of %s ago: got %t, want %t", namespace, key, sinceMark, got, want)
		}
	}
	wait := func(d time.Duration) { local.SetTime(local.Now().Add(d)) }
	want("a", "1", false, time.Hour)
	r.Add("a", "1")
	wait(50 * time.Minute)
	want("a", "1", true, 51*time.Minute)
	want("a", "1", false, 49*time.Minute)
	want("a", "2", false, time.Hour)
	want("b", "1", false, time.Hour)
	wait(15 * time.Minute)
	r.Add("b", "1") // the first ones are a grace period old
	want("a", "1", true, 66*time.Minute)
	want("b", "1", true, time.Minute)
	wait(10 * time.Minute)
	r.Add("a", "1")
	want("a", "1", true, time.Second)
	wait(time.Hour)
	r.Add("b", "2")
	want("a", "1", true, 61*time.Minute)
	wait(time.Hour)
	r.Add("b", "2")
	want("a", "1", false, 3*time.Hour)
}

// TestManyReleases: a namespace with many releases delays only some of its own deletions, and a release is never forgotten because of others.
func TestManyReleases(t *testing.T) {
	local := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	r := controllers.NewReleases(time.Hour, local)
	const many = 1_000_000
	for i := range many {
		r.Add("busy", fmt.Sprint(i))
	}
	released := func(namespace, key string) bool {
		return controllers.Released(r, local.Now(), namespace, key, local.Now().Add(-30*time.Second))
	}
	local.SetTime(local.Now().Add(time.Minute))
	for i := range many / 10 {
		r.Add("busy", fmt.Sprint(i))
	}
	delayed := 0
	for i := range many {
		switch is := released("busy", fmt.Sprint(i)); {
		case is && i >= many/10:
			delayed++
		case !is && i < many/10:
			t.Fatalf("the release of %d is forgotten", i)
		}
		if i < 1000 && released("other", fmt.Sprint(i)) {
			t.Fatalf("%d was released in another namespace", i)
		}
	}
	if delayed > many/5 {
		t.Errorf("%d deletions are delayed", delayed)
	}
}
