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
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/internal/operator/sessions"
)

func TestSettling(t *testing.T) {
	const hold = 64 * time.Second // so that the first wait is a second, and the longest eight
	type release struct {
		After time.Duration
		Names []string
	}
	flaps := func(n int, every time.Duration) (changes []time.Duration) {
		for i := range n {
			changes = append(changes, time.Duration(i)*every)
		}
		return changes
	}
	both := []string{"a", "b"}
	tests := map[string]struct {
		changes []time.Duration // since the start
		want    []release
	}{
		"one change":            {changes: flaps(1, 0), want: []release{{0, both}}},
		"change and reversal":   {changes: []time.Duration{0, 5 * time.Second}, want: []release{{0, both}, {6 * time.Second, both}}},
		"rare changes":          {changes: flaps(3, 9*time.Second), want: []release{{0, both}, {9 * time.Second, both}, {18 * time.Second, both}}},
		"flapping briefly":      {changes: flaps(4, 100*time.Millisecond), want: []release{{0, both}, {4300 * time.Millisecond, both}}},
		"flapping for a minute": {changes: flaps(500, 100*time.Millisecond), want: []release{{0, both}, {57900 * time.Millisecond, both}}},
		"flapping for long": {
			changes: flaps(1000, 130*time.Millisecond),
			want: []release{
				{0, both}, {64130 * time.Millisecond, both}, {128220 * time.Millisecond, both}, {137870 * time.Millisecond, both},
			},
		},
		"flapping slowly": {
			changes: flaps(5, 3900*time.Millisecond),
			want:    []release{{0, both}, {4900 * time.Millisecond, both}, {9800 * time.Millisecond, both}, {23600 * time.Millisecond, both}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, start := newSettling(hold), time.Now()
				var got []release
				released := func(namespace string, names []string) {
					slices.Sort(names)
					got = append(got, release{time.Since(start), names})
					for _, name := range names {
						if s.waits(types.NamespacedName{Namespace: namespace, Name: name}) {
							t.Errorf("%s was released and still waits", name)
						}
					}
				}
				for _, at := range tc.changes {
					time.Sleep(time.Until(start.Add(at))) //nolint:forbidigo // in a bubble, it takes no time
					s.changed(sessions.Change{Namespace: "ns", Name: "root", Others: []string{"a", "b"}}, released)
					synctest.Wait()
				}
				time.Sleep(2 * hold) //nolint:forbidigo // see above
				synctest.Wait()
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("released (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSettlingOthers: a session that keeps changing delays neither other namespaces nor sessions that another one affects with its
// first change. A session that several others affect is released once.
func TestSettlingOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(time.Minute)
		released := map[string][]string{}
		change := func(namespace, name string, others ...string) {
			s.changed(sessions.Change{Namespace: namespace, Name: name, Others: others}, func(namespace string, names []string) {
				slices.Sort(names)
				released[namespace] = append(released[namespace], names...)
			})
		}
		want := func(want map[string][]string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, released); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
			clear(released)
		}
		change("ns", "root", "a")
		change("ns", "other root", "x")
		change("other", "root", "b")
		change("ns", "alone")
		want(map[string][]string{"ns": {"a", "x"}, "other": {"b"}})
		change("ns", "root", "a", "c")
		change("ns", "other root", "a", "x")
		want(map[string][]string{})
		change("ns", "third root", "a")
		want(map[string][]string{"ns": {"a"}})
		if !s.waits(types.NamespacedName{Namespace: "ns", Name: "c"}) || s.waits(types.NamespacedName{Namespace: "other", Name: "c"}) {
			t.Error("unexpected sessions wait")
		}
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble, it takes no time
		want(map[string][]string{"ns": {"a", "c", "x"}})
	})
}

// TestSettlingForgets: sessions that no longer change use no memory.
func TestSettlingForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(time.Minute)
		for range 10_000 {
			s.changed(sessions.Change{Namespace: "ns", Name: time.Now().String(), Others: []string{"a"}}, func(string, []string) {})
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble, it takes no time
		}
		if len(s.causes) > minCauses {
			t.Errorf("%d causes are kept", len(s.causes))
		}
	})
}
