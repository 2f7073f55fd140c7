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
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/silence"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=list;watch

// Run watches all ResponseSessions through a client of their group and version, and keeps the view current until ctx is done.
// It never gives up: while the API server is unreachable, it retries, and also while it is unresponsive if the client is
// limited by silence.Limit.
//
// client-go's reflector feeds the view directly, without the store of an informer, which would need more memory than the
// whole view: see docs/decisions/no-informer.md.
func (v *View) Run(ctx context.Context, client rest.Interface) {
	source := &source{client: client, known: v.known, keep: v.keep}
	reflector := cache.NewReflectorWithOptions(source.listWatch(), &item{}, (*store)(v), cache.ReflectorOptions{
		Name: kubeclient.Sessions, TypeDescription: v1alpha1.ResponseSessionKind, MinWatchTimeout: silence.MinWatchTime,
	})
	v.age.Start()
	var others sync.WaitGroup
	others.Go(func() { v.freeGarbage(ctx) })
	others.Go(func() {
		v.age.Run(ctx, func(ctx context.Context) (uint64, error) {
			return v.notBefore(ctx, func() (uint64, error) {
				return kubeclient.CurrentVersion(ctx, client, kubeclient.Sessions, metav1.NamespaceSystem)
			})
		})
	})
	reflector.RunWithContext(ctx)
	others.Wait()
	v.feeds.wait()
}

// garbageAfter is the time after which the garbage of the first list is returned to the operating system: that of the list itself, and
// of the reconciles that follow. An idle process would keep it, and it can take more memory than the view.
const garbageAfter = 10 * time.Second

func (v *View) freeGarbage(ctx context.Context) {
	if v.WaitForSync(ctx) != nil {
		return
	}
	select {
	case <-time.After(garbageAfter):
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
}

// known returns the record of an object, or nil if the view does not have the object or its namespace is being changed. It does not
// wait for that change: one goroutine decodes the events of all namespaces, and to parse one spec again is quicker.
func (v *View) known(namespace, name string) *Record {
	ns := v.namespace(namespace)
	if ns == nil || !ns.mu.TryRLock() {
		return nil
	}
	defer ns.mu.RUnlock()
	return ns.get(name)
}

// isUnknown reports whether the view does not have an object. It does not wait for a change of its namespace: then it returns false.
func (v *View) isUnknown(namespace, name string) bool {
	ns := v.namespace(namespace)
	if ns == nil {
		return true
	}
	if !ns.mu.TryRLock() {
		return false
	}
	defer ns.mu.RUnlock()
	return ns.get(name) == nil
}

// HasSynced reports whether the view has held all sessions at least once.
func (v *View) HasSynced() bool {
	select {
	case <-v.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until HasSynced.
func (v *View) WaitForSync(ctx context.Context) error {
	select {
	case <-v.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unable to list the sessions: %w", ctx.Err())
	}
}

// Reflects reports whether the view of a namespace, or of all namespaces if it is empty, is at least as new as a resource
// version, and its subscribers have been notified.
func (v *View) Reflects(namespace string, resourceVersion uint64) bool {
	v.mu.RLock()
	received := v.resourceVersion
	v.mu.RUnlock()
	return received >= resourceVersion && v.feeds.reflect(namespace, resourceVersion)
}

// WaitUntilReflects waits until Reflects, or returns the error of the context if it is done first. It can take a minute: if no
// session changes, only bookmarks show that the view is current.
func (v *View) WaitUntilReflects(ctx context.Context, namespace string, resourceVersion uint64) error {
	for {
		moved := v.moved.Wait()
		if v.Reflects(namespace, resourceVersion) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isBefore reports whether a resource version is older than one that was received.
func (v *View) isBefore(resourceVersion uint64) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return resourceVersion < v.resourceVersion
}

// restoredDelay is the time between two reads, or a first list and later ones, that show that the cluster has been restored. One is not enough
// because of substitutes for etcd, such as kine, whose version can be too low for a moment.
const restoredDelay = 10 * time.Second

// notBefore returns the resource version that current returns, which is at least as new as all that have been sent, or errRestored if it is
// older than one that was received before the call, and still is a while later.
func (v *View) notBefore(ctx context.Context, current func() (uint64, error)) (uint64, error) {
	v.mu.RLock()
	received := v.resourceVersion
	v.mu.RUnlock()
	version, err := current()
	if err != nil || version >= received {
		return version, err
	}
	select {
	case <-time.After(restoredDelay):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if version, err = current(); err != nil || version >= received {
		return version, err
	}
	v.restoredOnce.Do(func() { close(v.restored) })
	return 0, errRestored
}

// EndIfRestored returns an error when the cluster has been restored to an earlier state, which nothing that is in memory reflects, or nil when
// ctx is done.
func (v *View) EndIfRestored(ctx context.Context) error {
	select {
	case <-v.restored:
		return errRestored
	case <-ctx.Done():
		return nil
	}
}

// advance records the progress of the watch.
func (v *View) advance(resourceVersion uint64) {
	v.mu.Lock()
	v.resourceVersion = max(v.resourceVersion, resourceVersion)
	v.mu.Unlock()
	v.age.Received(resourceVersion)
	v.moved.Notify()
}

// Age returns the time since the API server last sent an event, a bookmark or a whole list or, if it has sent none, since Run
// began. If what it sent last was late by more than that, Age returns the delay. Bookmarks arrive about once a minute.
func (v *View) Age() time.Duration { return v.age.Get() }

// IsStale reports whether the view may lack changes: it has not synced, or the API server has been silent for too long, or is too late.
func (v *View) IsStale() bool { return !v.HasSynced() || v.Age() > v.timeout }

// store is the view as client-go's reflector uses it.
type store View

var (
	_ cache.TransformingStore      = &store{}
	_ cache.ResourceVersionUpdater = &store{}
)

// Transformer makes records of objects as they are decoded, so that the first list holds no bodies either.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return s.record(object) }
}

func (s *store) record(value any) (*Record, error) {
	switch value := value.(type) {
	case *Record:
		return value, nil
	case *item:
		return value.record, nil
	}
	return nil, fmt.Errorf("unexpected object of type %T", value)
}

func (s *store) Add(object any) error { return s.Update(object) }

func (s *store) Update(object any) error {
	r, err := s.record(object)
	if err == nil {
		(*View)(s).receive(r, event{name: r.Name, version: r.ResourceVersion, record: r})
	}
	return err
}

func (s *store) Delete(object any) error {
	r, err := s.record(object)
	if err == nil {
		(*View)(s).receive(r, event{name: r.Name, version: r.ResourceVersion})
	}
	return err
}

// receive passes on an object that the watch has sent.
func (v *View) receive(r *Record, e event) {
	v.feeds.add(r.Namespace, e)
	v.advance(r.ResourceVersion)
}

// errRestored indicates that the state of the API server is older than what it has sent before: etcd was restored from a backup. Objects with
// the versions since then may have another content than those that the view has.
var errRestored = errors.New("the cluster has been restored to an earlier state: a restart is necessary")

// Replace replaces the view's content with a new list. It returns once the list has been applied, so that the view is then
// synced.
func (s *store) Replace(objects []any, resourceVersion string) error {
	v := (*View)(s)
	version := ParseResourceVersion(resourceVersion)
	if v.isBefore(version) {
		if v.suspected.IsZero() {
			v.suspected = time.Now()
		}
		if time.Since(v.suspected) >= restoredDelay { // the reflector lists again and again
			v.restoredOnce.Do(func() { close(v.restored) })
		}
		return errRestored
	}
	v.suspected = time.Time{}
	listed := map[string][]*Record{}
	for _, object := range objects {
		r, err := s.record(object)
		if err != nil {
			return err
		}
		listed[r.Namespace] = append(listed[r.Namespace], r)
	}
	v.feeds.supersede(finder(listed))
	v.readAll(func(ns *namespaceView) {
		if _, found := listed[ns.name]; !found {
			listed[ns.name] = nil // all its sessions are gone
		}
	})
	for namespace, records := range listed {
		v.feeds.add(namespace, event{version: version, isList: true, list: records})
	}
	v.feeds.wait()
	v.advance(version)
	v.listed()
	v.syncedOnce.Do(func() { close(v.synced) })
	return nil
}

// finder returns a function that returns an event with the record that a list has of an object, or nil.
func finder(listed map[string][]*Record) func(namespace, name string) event {
	byName := map[string]map[string]*Record{} // of the namespaces that are asked for
	return func(namespace, name string) event {
		records := byName[namespace]
		if records == nil {
			records = map[string]*Record{}
			for _, r := range listed[namespace] {
				records[r.Name] = r
			}
			byName[namespace] = records
		}
		return event{record: records[name]}
	}
}

// A namespace rests after an event for restPerTurn for each turn that was judged again since the previous event, but not for more than
// maxRest, and not at all if that would be less than minRest, which no one would notice. To judge a turn, and to hand it on, takes a
// processor about a quarter of restPerTurn.
const (
	restPerTurn = 2 * time.Microsecond
	minRest     = time.Millisecond
	maxRest     = time.Second
)

// rest returns how long the namespace must rest.
func (ns *namespaceView) rest() time.Duration {
	judged := ns.index.Judged() - ns.rested
	ns.rested += judged
	rest := time.Duration(min(judged, uint64(maxRest/restPerTurn))) * restPerTurn
	if rest < minRest {
		return 0
	}
	return rest
}

// skip notes what an event would have changed that is not applied because the next one of the same object, or a list, follows already.
func (v *View) skip(namespace string, e, next event) {
	if e.record != nil {
		v.release.replaced(namespace, e.record, next.record)
	}
}

// apply applies an event to a namespace, notifies the subscribers, and returns how long the namespace must rest.
func (v *View) apply(namespace string, e event) (rest time.Duration) {
	if e.isList {
		ns := v.lockOrAdd(namespace)
		others := ns.replace(e.list)
		ns.rested = ns.index.Judged()
		v.unlock(ns)
		v.send(Change{Namespace: namespace, Others: others})
		return 0
	}
	var ns *namespaceView
	if e.record != nil {
		ns = v.lockOrAdd(namespace)
	} else if ns = v.lock(namespace); ns == nil {
		return 0
	}
	var changed *effect
	if e.record != nil {
		changed = ns.put(e.record, true)
	} else {
		changed = ns.delete(e.name)
	}
	rest = ns.rest()
	v.unlock(ns)
	v.notify(namespace, changed)
	return rest
}

// replace stores the listed records and removes all others. It returns the names of the sessions that this affects.
func (ns *namespaceView) replace(records []*Record) []string {
	var affected []string
	add := func(e *effect) {
		if e != nil {
			affected = append(append(affected, e.name), e.others()...)
		}
	}
	removed := map[string]bool{} // empty after a restart
	for name := range ns.names() {
		removed[name] = true
	}
	var known []*Record
	for r := range parentsFirst(records) {
		if removed[r.Name] {
			known = append(known, r)
		} else {
			add(ns.put(r, true))
		}
		delete(removed, r.Name)
	}
	// In random order: if the turns of a chain have failed, or have been deleted, each one could otherwise become the nearest such ancestor of
	// 100,000 turns, one after the other. So only a few do.
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	for _, r := range known {
		add(ns.put(r, true))
	}
	for name := range removed { // in random order, too
		add(ns.delete(name))
	}
	slices.Sort(affected)
	return slices.Compact(affected)
}

// parentsFirst yields each record after its parent if the parent is among the records and they are not part of a cycle. Without
// it, if the names of a chain sort in reverse order, each record would cause the verdicts on all its descendants to be
// recomputed.
func parentsFirst(records []*Record) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		waiting := make(map[string]*Record, len(records)) // by response ID
		for _, r := range records {
			if r.InChain() {
				waiting[r.Turn.ID] = r
			}
		}
		var chain []*Record
		for _, r := range records {
			if !r.InChain() && !yield(r) {
				return
			}
			for next := waiting[r.Turn.ID]; next != nil && r.InChain(); next = waiting[next.Turn.Previous] {
				chain = append(chain, next)
				delete(waiting, next.Turn.ID)
			}
			for ; len(chain) > 0; chain = chain[:len(chain)-1] {
				if !yield(chain[len(chain)-1]) {
					return
				}
			}
		}
	}
}

// Resync does nothing: the view has no other copy to compare itself with.
func (s *store) Resync() error { return nil }

// UpdateResourceVersion applies a bookmark.
func (s *store) UpdateResourceVersion(resourceVersion string) {
	(*View)(s).advance(ParseResourceVersion(resourceVersion))
}
