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

package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/broadcast"
	"github.com/catena-dev/catena/internal/chain"
)

// sent is an event that the reference records.
type sent struct {
	event
	namespace     string
	started, done bool
}

// TestFeeds compares with a list of all events: each namespace applies its own events, whether others have finished or not,
// in the order in which their objects began to wait, and only the latest event of each object.
func TestFeeds(t *testing.T) {
	namespaces := []string{"a", "b", "c"}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			var all []*sent // the reference
			applying, finish := map[string]event{}, map[string]chan struct{}{}
			for _, namespace := range namespaces {
				finish[namespace] = make(chan struct{})
			}
			started := make(chan *sent, len(namespaces))
			f := newFeeds(func(namespace string, e event) time.Duration {
				started <- &sent{event: e, namespace: namespace}
				<-finish[namespace]
				return 0
			}, func(string, event, event) {}, &broadcast.Broadcast{})
			check := func() {
				synctest.Wait()
				for len(started) > 0 {
					got := <-started
					applying[got.namespace] = got.event
					if want := startNext(all, got.namespace); want == nil || want.name != got.name || want.version != got.version {
						t.Fatalf("%s applies %s@%d, want %+v", got.namespace, got.name, got.version, want)
					}
				}
				for _, namespace := range append(namespaces, "") {
					version := rapid.Uint64Range(0, uint64(len(all)+1)).Draw(t, "version")
					waits := slices.ContainsFunc(all, func(e *sent) bool {
						return !e.done && e.version <= version && (e.namespace == namespace || namespace == "")
					})
					if got := f.reflect(namespace, version); got == waits {
						t.Fatalf("%q reflects %d: %t", namespace, version, got)
					}
				}
			}
			for range rapid.IntRange(1, 50).Draw(t, "steps") {
				namespace := rapid.SampledFrom(namespaces).Draw(t, "namespace")
				if _, busy := applying[namespace]; busy && rapid.Bool().Draw(t, "finish") {
					finished(all, namespace)
					delete(applying, namespace)
					finish[namespace] <- struct{}{}
				} else {
					e := event{name: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"), version: uint64(len(all) + 1)}
					all = append(all, &sent{event: e, namespace: namespace})
					f.add(namespace, e)
				}
				check()
			}
			for len(applying) > 0 {
				for _, namespace := range namespaces {
					if _, busy := applying[namespace]; busy {
						finished(all, namespace)
						delete(applying, namespace)
						finish[namespace] <- struct{}{}
						check()
					}
				}
			}
			f.wait()
			if i := slices.IndexFunc(all, func(e *sent) bool { return !e.done }); i >= 0 || len(f.waiting) > 0 {
				t.Fatalf("event %d was not applied; waiting: %v", i, f.waiting)
			}
		})
	})
}

// TestFeedsRest: after an event that took long, the next one of the same namespace waits, also if it arrives later, and those of other
// namespaces do not. What has been applied is reflected meanwhile. A caller that waits for all events ends the rests.
func TestFeedsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rest = time.Second
		start := time.Now()
		var mu sync.Mutex
		got := map[string]time.Duration{}
		f := newFeeds(func(namespace string, e event) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(namespace, e.version)] = time.Since(start)
			return rest
		}, func(string, event, event) {}, &broadcast.Broadcast{})
		f.add("a", event{name: "x", version: 1})
		synctest.Wait()
		if !f.reflect("a", 1) || !f.reflect("", 1) {
			t.Error("an event that was applied is not reflected")
		}
		time.Sleep(rest / 4) //nolint:forbidigo // in a bubble, it takes no time
		f.add("a", event{name: "x", version: 2})
		f.add("b", event{name: "x", version: 3})
		synctest.Wait()
		if f.reflect("a", 2) || !f.reflect("b", 3) {
			t.Error("an event that waits is reflected, or one that was applied is not")
		}
		f.add("a", event{name: "x", version: 4}) // replaces the second one
		time.Sleep(rest)                         //nolint:forbidigo // see above
		f.add("a", event{name: "x", version: 5})
		f.add("a", event{name: "y", version: 6})
		f.wait()
		want := map[string]time.Duration{"a1": 0, "b3": rest / 4, "a4": rest, "a5": rest * 5 / 4, "a6": rest * 5 / 4}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("times (-want +got):\n%s", diff)
		}
		f.add("a", event{name: "x", version: 7})
		f.add("a", event{name: "y", version: 8})
		synctest.Wait()
		if f.reflect("a", 8) {
			t.Error("after a caller has waited for all events, namespaces do not rest")
		}
		f.wait()
	})
}

// TestSupersede: a list drops the events that wait, and until it has been applied, their versions are not reflected.
func TestSupersede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		applied, proceed := []string{}, make(chan struct{})
		skipped := map[string]string{}
		f := newFeeds(func(_ string, e event) time.Duration {
			if applied = append(applied, e.name); e.name == "first" {
				<-proceed
			}
			return 0
		}, func(namespace string, e, next event) { skipped[namespace+"/"+e.name] = next.record.Name }, &broadcast.Broadcast{})
		f.add("a", event{name: "first", version: 1})
		synctest.Wait()
		f.add("a", event{name: "second", version: 2})
		f.add("a", event{name: "third", version: 3})
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.supersede(func(_, name string) event {
				return event{record: &Record{Object: Object{Name: "listed " + name}}}
			})
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("an event is still being applied")
		default:
		}
		close(proceed)
		<-done
		if !f.reflect("a", 1) || f.reflect("a", 2) || f.reflect("", 3) || !f.reflect("b", 3) {
			t.Error("reflects what was dropped, or not what was applied")
		}
		f.add("a", event{version: 4, isList: true})
		f.wait()
		if !f.reflect("", 4) {
			t.Error("does not reflect the list")
		}
		want := map[string]string{"a/second": "listed second", "a/third": "listed third"}
		if diff := cmp.Diff([]string{"first", ""}, applied) + cmp.Diff(want, skipped); diff != "" {
			t.Errorf("applied and skipped events (-want +got):\n%s", diff)
		}
	})
}

// TestListOfManyChanges: to apply a list does not take as long as the number of its changes times the number of descendants.
func TestListOfManyChanges(t *testing.T) {
	const turns, leaves = 300, 1000
	v := NewView(turns+1, time.Hour)
	list := func(version uint64, status string) (judged uint64) {
		var records []*Record
		add := func(id, previous, status string) {
			r := bigRecord(id, previous)
			r.ResourceVersion, r.Turn.Status = version, status
			records = append(records, r)
		}
		previous := ""
		for i := range turns { // from the root on
			id := fmt.Sprintf("t%04d", i)
			add(id, previous, status)
			previous = id
		}
		for i := range leaves {
			add(fmt.Sprintf("u%04d", i), previous, chain.StatusCompleted)
		}
		before := uint64(0)
		v.read("big", func(ns *namespaceView) { before = ns.index.Judged() })
		v.apply("big", event{version: version, isList: true, list: records})
		v.read("big", func(ns *namespaceView) { judged = ns.index.Judged() - before })
		return judged
	}
	if got := list(1, chain.StatusCompleted); got > 2*(turns+leaves) {
		t.Errorf("%d verdicts were computed for a new list of %d", got, turns+leaves)
	}
	for i := turns - 2; i >= 0; i -= 2 { // the list has parents of known turns
		v.apply("big", event{name: fmt.Sprintf("t%04d", i)})
	}
	if got := list(1, chain.StatusCompleted); got > 2*(turns+leaves) {
		t.Errorf("%d verdicts were computed for a list with half of the turns of a chain", got)
	}
	for version, status := range []string{chain.StatusFailed, chain.StatusCompleted} {
		// One after the other, 300,000. In random order, the nearest failed one of the leaves changes 6 times on average.
		if got := list(uint64(2+version), status); got > 40*(turns+leaves) {
			t.Errorf("%d verdicts were computed for a list of %d turns that are %s", got, turns, status)
		}
	}
}

// TestRest: a namespace rests after a change that has caused many verdicts to be computed, also if few of them have changed.
func TestRest(t *testing.T) {
	const descendants = 2000
	for name, isChain := range map[string]bool{"tree": false, "chain": true} {
		t.Run(name, func(t *testing.T) {
			v := NewView(chain.DefaultMaxDepth, time.Hour)
			bigTree(t, v, descendants, isChain)
			root := *bigRecord("root", "")
			root.ResourceVersion, root.Turn.Status = 2, chain.StatusFailed
			if got, want := v.apply("big", event{name: "root", record: &root}), (descendants+1)*restPerTurn; got != want {
				t.Errorf("rests for %s after a root has changed, want %s", got, want)
			}
			if got := v.apply("big", event{name: "new", record: bigRecord("new", "root")}); got != 0 {
				t.Errorf("rests for %s after a turn was added, want no rest", got)
			}
			if got, want := v.apply("big", event{name: "root"}), (descendants+2)*restPerTurn; got != want {
				t.Errorf("rests for %s after a root was deleted, want %s", got, want)
			}
			v.apply("big", event{name: "root", record: bigRecord("root", "")})
			restored, _ := v.Get("big", "root")
			v.SetReadable(restored, false)
			if got, want := v.apply("big", event{name: "new"}), (descendants+3)*restPerTurn; got != want {
				t.Errorf("rests for %s at the first event after a root was found to be unreadable, want %s", got, want)
			}
		})
	}
}

// TestWaitUntilReflects: a caller waits until an event of its namespace was applied, not only received. It does not wait for events
// of other namespaces to be applied.
func TestWaitUntilReflects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewView(chain.DefaultMaxDepth, time.Hour)
		s := (*store)(v)
		replace(s, 1)
		proceed := make(chan struct{})
		v.Subscribe(func(change Change) {
			if change.Namespace == "ns" {
				<-proceed
			}
		})
		var reached atomic.Int64
		wait := func(ctx context.Context, namespace string, version uint64) {
			go func() {
				if v.WaitUntilReflects(ctx, namespace, version) == nil {
					reached.Add(1)
				}
			}()
		}
		check := func(what string, want int64) {
			synctest.Wait()
			if got := reached.Load(); got != want {
				t.Errorf("%s: %d calls have returned, want %d", what, got, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(t.Context(), "ns", 1)
		check("after the list", 1)
		wait(t.Context(), "ns", 5)
		wait(t.Context(), "other", 5)
		wait(ctx, "other", 6)
		check("before any event", 1)
		must(s.Add(watched(s, object("t1", "", 5))))
		check("while an event of the namespace is being applied", 2)
		close(proceed)
		check("after the event was applied", 3)
		cancel()
		check("after a call was canceled", 3)
		s.UpdateResourceVersion("6")
		wait(t.Context(), "ns", 6)
		check("after a bookmark", 4)
	})
}

// startNext marks the events that are applied together as started, and returns the latest.
func startNext(all []*sent, namespace string) (latest *sent) {
	for _, e := range all {
		if e.namespace == namespace && !e.started && (latest == nil || latest.name == e.name) {
			e.started, latest = true, e
		}
	}
	return latest
}

func finished(all []*sent, namespace string) {
	for _, e := range all {
		if e.namespace == namespace && e.started {
			e.done = true
		}
	}
}

// bigTree fills the namespace "big" of a view with a root and as many descendants as given, which are children of the root or,
// as a chain, of one another.
func bigTree(tb testing.TB, v *View, descendants int, isChain bool) {
	tb.Helper()
	records := []any{bigRecord("root", "")}
	for i := range descendants {
		parent := "root"
		if isChain && i > 0 {
			parent = fmt.Sprint("child-", i-1)
		}
		records = append(records, bigRecord(fmt.Sprint("child-", i), parent))
	}
	slices.Reverse(records) // children first
	must((*store)(v).Replace(records, "1"))
}

func bigRecord(id, previous string) *Record {
	return &Record{
		Object: Object{Namespace: "big", Name: id, UID: NewUID(types.UID("uid-of-" + id)), Generation: 1, ResourceVersion: 1},
		Turn:   chain.Turn{ID: id, Previous: previous, Status: chain.StatusCompleted},
	}
}

// TestNamesInReverse: a list in which every parent comes after its children is applied as quickly as any other.
func TestNamesInReverse(t *testing.T) {
	const turns = 100_000
	v := NewView(2*turns, time.Hour)
	bigTree(t, v, turns, true) // would take minutes
	verdict, _ := v.Verdict("big", fmt.Sprint("child-", turns-1))
	if verdict.Rule != chain.Resolved || verdict.Depth != turns+1 {
		t.Errorf("unexpected verdict %s with depth %d", verdict.Rule, verdict.Depth)
	}
}

// BenchmarkFeedDelay is the time from an event of one namespace to its notification, while in another one the root of 100,000
// turns changes with each.
func BenchmarkFeedDelay(b *testing.B) {
	for _, shape := range []string{"star", "chain"} {
		b.Run(shape, func(b *testing.B) {
			v := NewView(chain.DefaultMaxDepth, time.Hour)
			bigTree(b, v, 100_000, shape == "chain")
			notified, queue := make(chan struct{}), map[string]bool{}
			v.Subscribe(func(change Change) {
				if change.Namespace == "ns" {
					notified <- struct{}{}
					return
				}
				for _, name := range change.Others {
					queue[name] = true
				}
			})
			version := 1
			var delays []time.Duration
			for b.Loop() {
				version++
				root := in("big", object("root", "", version))
				root.Generation = int64(version)
				root.Spec.ResponseStatus = []string{"completed", "failed"}[version%2]
				start := time.Now()
				must((*store)(v).Add(watched((*store)(v), root)))
				go func() { must((*store)(v).Add(watched((*store)(v), object(fmt.Sprint("t", version), "", version)))) }()
				<-notified
				delays = append(delays, time.Since(start))
				b.StopTimer()
				v.feeds.wait()
				b.StartTimer()
			}
			slices.Sort(delays)
			b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
		})
	}
}
