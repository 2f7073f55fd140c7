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

package controllers

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOutlet: the sessions of a namespace are queued in batches, whatever has caused them to be queued, and each once. They delay no
// other namespace.
func TestOutlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batch = 100
		start := time.Now()
		var mu sync.Mutex
		queued := map[string]map[time.Duration]int{"many": {}, "few": {}}
		times := map[string]int{}
		o := newOutlet(batch, itself, func(namespace string, names []string) {
			mu.Lock()
			defer mu.Unlock()
			queued[namespace][time.Since(start)] += len(names)
			for _, name := range names {
				times[name]++
			}
		})
		numbered := func(from, to int) (names []string) {
			for i := from; i < to; i++ {
				names = append(names, strconv.Itoa(i))
			}
			return names
		}
		o.queue("many", numbered(0, 250))
		o.queue("many", numbered(100, 350)) // up to 100 of those that wait already
		o.queue("few", []string{"x", "y"})
		time.Sleep(outletPause / 2) //nolint:forbidigo // in a bubble, it takes no time
		o.queue("few", []string{"z"})
		time.Sleep(time.Minute) //nolint:forbidigo // see above
		synctest.Wait()
		many := queued["many"]
		total := 0
		for pauses := range 5 {
			at := time.Duration(pauses) * outletPause
			if total += many[at]; many[at] > batch {
				t.Errorf("%d sessions were queued at once, want at most %d", many[at], batch)
			}
		}
		if len(times) != 350+3 || total < 350 || total > 350+batch {
			t.Errorf("%d sessions were queued %d times within half a second, want all %d, once each unless already queued", len(times), total, 350)
		}
		want := map[time.Duration]int{0: 2, outletPause / 2: 1}
		if diff := cmp.Diff(want, queued["few"]); diff != "" {
			t.Errorf("the other namespace (-want +got):\n%s", diff)
		}
		if len(o.flows) > 0 {
			t.Errorf("%d namespaces take memory without sessions that wait", len(o.flows))
		}
	})
}

// TestOutletOfMany: what one session affects is queued in batches, too, and again after the session has changed once more. It does not keep others
// from being queued.
func TestOutletOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batch, many = 100, 1000
		var mu sync.Mutex
		affected := map[string][]string{}
		for i := range many {
			affected["popular"] = append(affected["popular"], fmt.Sprintf("c%04d", i))
		}
		affected["rare"] = []string{"rare"}
		queued := map[string]int{}
		most := 0
		o := newOutlet(batch, func(_, session, after string, limit int) []string {
			names := affected[session]
			from, found := slices.BinarySearch(names, after)
			if found {
				from++
			}
			return names[from:min(len(names), from+limit)]
		}, func(_ string, names []string) {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, len(names))
			for _, name := range names {
				queued[name]++
			}
		})
		o.queue("ns", []string{"popular"})
		time.Sleep(3 * outletPause) //nolint:forbidigo // in a bubble, it takes no time
		for range 5 {
			o.queue("ns", []string{"popular", "rare"})
		}
		time.Sleep(time.Minute) //nolint:forbidigo // see above
		synctest.Wait()
		for _, name := range affected["popular"] {
			if queued[name] != 2 {
				t.Fatalf("%s was queued %d times, want twice", name, queued[name])
			}
		}
		if queued["rare"] == 0 || len(queued) != many+1 || most > batch {
			t.Errorf("%d names were queued, %d of them at once; the other %d times", len(queued), most, queued["rare"])
		}
		if len(o.flows) > 0 {
			t.Errorf("%d namespaces take memory without sessions that wait", len(o.flows))
		}
	})
}

// TestOutletBatch: the batch follows from the rate of statuses, whatever that is.
func TestOutletBatch(t *testing.T) {
	for rate, want := range map[float64]int{0.001: 1, 100: 100, 2.5: 2, math.Inf(1): math.MaxInt32 / maxLookups} {
		if got := newOutlet(rate, itself, nil).batch; got != want {
			t.Errorf("%g statuses per second: %d sessions are queued at once, want %d", rate, got, want)
		}
	}
}
