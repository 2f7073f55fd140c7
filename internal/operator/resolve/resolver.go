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

package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// Resolver answers queries. It is safe for concurrent use.
//
// A chain that is intact in the view is answered from the view and the cache of items; items that are not cached are read
// live. Any other verdict of the view may be outdated, so the turns that the walk has visited are confirmed, and the walk is
// repeated, until it succeeds or every turn is confirmed: see confirm.
type Resolver struct {
	view         *sessions.View
	reader       *Reader
	report       func(*sessions.Record)
	historyBytes int64
	requests     *fair.Budget // by namespace
	// walks are the processors, so that walks along deep chains, of which one namespace can request many at once, leave some for
	// others.
	walks  *fair.Budget // by namespace
	shared *shared
	// confirmations limits the turns that are confirmed with live reads. answers limits the bytes of histories, and of snapshots that
	// are read to confirm a turn.
	confirmations, answers *rate
	waits                  waits
}

// answerBurst is how far a namespace may be ahead of Options.AnswerBytesPerSecond when another history begins. It is short,
// because queries that start at once compete with the requests of other namespaces.
const answerBurst = 50 * time.Millisecond

// New returns a resolver. It calls report, which must not block, with a session whose snapshot turns out to be unreadable.
func New(view *sessions.View, reader *Reader, report func(*sessions.Record), options Options) *Resolver {
	return &Resolver{
		view: view, reader: reader, report: report,
		historyBytes: options.HistoryBytes, requests: fair.NewBudget(options.InFlightRequests),
		walks: newProcessors(), shared: newShared(options.InFlightBytes, options.share()),
		confirmations: newRate(options.ConfirmationsPerSecond, time.Second, options.WaitingRequests,
			"too many broken chains, or chains that have just been changed, were resolved in this namespace"),
		answers: newRate(options.AnswerBytesPerSecond, answerBurst, options.WaitingRequests,
			"too many bytes of histories were resolved in this namespace"),
		waits: defaultWaits,
	}
}

// Metric returns a gauge with the bytes of the histories in flight.
func (r *Resolver) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "catena_resolve_inflight_bytes",
		Help: "Number of bytes of input items that all requests in flight hold together. The limit is --max-inflight-bytes.",
	}, func() float64 { return float64(r.shared.bytes.Used()) })
}

// Resolve returns the history of a turn, which is named by its response ID or, if no turn has that ID, by the object name
// of its ResponseSession. The result is at least as new as the resource version minVersion; 0 accepts any.
//
// It returns a *chain.Error if the chain does not resolve, ErrTooLarge, ErrBusy or a *ThrottledError if a limit of Options is
// exceeded, the API server's error if a live read fails, and the context's error once ctx is done. Release the result when
// it is no longer needed.
func (r *Resolver) Resolve(ctx context.Context, namespace, name string, minVersion uint64, query Query) (*Result, error) {
	return r.admit(namespace, func() (*Result, error) {
		l := r.newLookup(namespace, query)
		id, err := l.responseID(ctx, name)
		if err != nil {
			return nil, err
		}
		return l.resolve(ctx, id, minVersion)
	})
}

// admit counts a query of a namespace until its result is released.
func (r *Resolver) admit(namespace string, resolve func() (*Result, error)) (*Result, error) {
	if !r.requests.TryAcquire(namespace, 1) {
		return nil, ErrBusy
	}
	done := sync.OnceFunc(func() { r.requests.Release(namespace, 1) })
	result, err := resolve()
	if err != nil {
		done()
		return nil, err
	}
	result.done = done
	return result, nil
}

// Share is a request that is not a query, and uses the shares of a namespace as one does.
type Share struct {
	// Bytes is the size of its answer.
	Bytes int64
	// Cost is what the request costs besides, in bytes of a cached history that would take as long.
	Cost int64
	// Continued is set for a further part of a request. Its cost counts, but it waits for a processor only, and is not refused.
	Continued bool
}

// Share calls compute, which must not block, with the processors of a namespace's share, and counts the request and its answer towards
// its other shares. It returns ErrTooLarge, ErrBusy, a *ThrottledError, or the error of the context without calling compute. Otherwise, call release
// once, when the answer has been sent.
func (r *Resolver) Share(ctx context.Context, namespace string, share Share, compute func()) (release func(), err error) {
	if share.Continued {
		r.answers.charge(namespace, share.Cost)
		return func() {}, r.process(ctx, namespace, compute)
	}
	if !r.requests.TryAcquire(namespace, 1) {
		return nil, ErrBusy
	}
	if err := r.answers.take(ctx, &lookup{Resolver: r, namespace: namespace}, share.Bytes+share.Cost); err != nil {
		r.requests.Release(namespace, 1)
		return nil, err
	}
	if !r.shared.bytes.TryAcquire(namespace, share.Bytes) {
		r.requests.Release(namespace, 1)
		return nil, cmp.Or(r.shared.tooLarge(share.Bytes), ErrBusy)
	}
	release = func() {
		r.shared.bytes.Release(namespace, share.Bytes)
		r.requests.Release(namespace, 1)
	}
	if err := r.process(ctx, namespace, compute); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// process calls compute with one of the processors that walks share. While a change of the namespace is being applied, for which compute
// would wait, it holds none.
func (r *Resolver) process(ctx context.Context, namespace string, compute func()) error {
	for busy := true; busy; {
		r.view.Await(namespace)
		if err := r.walks.Acquire(ctx, namespace, 1); err != nil {
			return err
		}
		if busy = r.view.IsBusy(namespace); busy {
			r.walks.Release(namespace, 1)
		}
	}
	defer r.walks.Release(namespace, 1)
	compute()
	return nil
}

// resolve returns the history of the turn with a response ID.
func (l *lookup) resolve(ctx context.Context, id string, minVersion uint64) (*Result, error) {
	options := l.query.WalkOptions
	fresh := !l.view.IsStale() && l.await(ctx, minVersion)
	path, err := l.path(ctx, id, options)
	if err != nil {
		return nil, err
	}
	if path != nil && fresh {
		history, err := l.read(ctx, path)
		if !errors.Is(err, errOutdated) {
			return history, err
		}
	}
	for {
		path, walkErr := l.walk(ctx, id, options)
		if walkErr != nil && !isChainError(walkErr) {
			return nil, walkErr
		}
		if walkErr != nil || !fresh {
			if len(l.unconfirmed()) > 0 {
				if err := l.confirm(ctx, walkErr != nil); err != nil {
					return nil, err
				}
				continue
			}
		}
		l.settle(walkErr != nil)
		if walkErr != nil {
			if err := l.chargeError(ctx); err != nil {
				return nil, err
			}
			l.explain(walkErr)
			return nil, walkErr
		}
		history, err := l.read(ctx, path)
		if !errors.Is(err, errOutdated) {
			return history, err
		}
	}
}

// explain adds the reason why a turn is unreadable to an error of the walk, as far as its object shows it. It reports bodies that the
// view does not have as unreadable: snapshots, and bodies in an object that an earlier build could read. What the reference to a snapshot
// shows, the leader sees too, unless it is newer and can read the format.
func (l *lookup) explain(walkErr error) {
	chainError, _ := errors.AsType[*chain.Error](walkErr)
	s := l.get(chainError.ResponseID)
	if chainError.Rule != chain.SnapshotUnreadable || s == nil {
		return
	}
	chainError.Problem = s.Problem()
	if s.Snapshot() != nil && s.Problem() != "" {
		return
	}
	known, found := l.view.Get(s.Namespace, s.Name)
	if !found || !known.SameSpec(&s.Object) || !known.Turn.Unreadable && known.Reported() != s.Generation {
		l.report(s)
	}
}

func isChainError(err error) bool {
	_, ok := errors.AsType[*chain.Error](err)
	return ok
}

// errOutdated indicates that a session has changed since the walk visited it, and that the lookup has its new state.
var errOutdated = errors.New("session has changed in the meantime")

// lookup is the state of one call of Resolve.
type lookup struct {
	*Resolver
	namespace string
	query     Query

	mu        sync.Mutex
	confirmed map[string]*sessions.Record // by response ID; nil for turns that do not exist
	// caughtUp is set if the view has everything that was stored when the lookup began, and when the last of its live reads was
	// answered.
	caughtUp bool
	visited  []string
	// stale is the number of turns that were read because the view was stale, and paid how many of them the namespace has paid for.
	stale, paid int64
	// conversation is the one that is resolved, or nil.
	conversation *Conversation
}

func (r *Resolver) newLookup(namespace string, query Query) *lookup {
	return &lookup{Resolver: r, namespace: namespace, query: query, confirmed: map[string]*sessions.Record{}}
}

// responseID returns the response ID that a name stands for. A response ID wins over an object name, so it is confirmed first that
// no turn has a name that the view has only as an object name.
func (l *lookup) responseID(ctx context.Context, name string) (string, error) {
	if _, found := l.view.Lookup(l.namespace, name); found || !mayBeObjectName(name) {
		return name, nil
	}
	l.visited = []string{name}
	if err := l.confirm(ctx, false); err != nil {
		return "", err
	}
	if l.get(name) != nil || v1alpha1.ObjectName(name) == name {
		return name, nil
	}
	s, found := l.view.Get(l.namespace, name)
	if !l.caughtUp && (!found || !s.InChain()) {
		if err := l.confirmations.take(ctx, l, 1); err != nil {
			return "", err
		}
		var err error
		if s, _, err = l.reader.getObject(ctx, l.namespace, name); err != nil {
			return "", err
		}
		if s != nil {
			l.answers.debit(l.namespace, cold*int64(s.ObjectBytes))
		}
	}
	if s == nil || !s.InChain() {
		return name, nil
	}
	return s.Turn.ID, nil
}

// get returns the record from a live read or, without one, the record of the view.
func (l *lookup) get(id string) *sessions.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, found := l.confirmed[id]; found {
		return s
	}
	s, _ := l.view.Lookup(l.namespace, id)
	return s
}

// set stores the result of a live read, which may refer to turns that the view does not have yet.
func (l *lookup) set(id string, s *sessions.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed[id], l.caughtUp = s, false
}

// path returns the sessions from the root to a response ID if its chain is intact in the view, and otherwise nil. A namespace that is
// ahead of its rate waits before that, because a long path costs as much as a small answer.
func (l *lookup) path(ctx context.Context, id string, options chain.WalkOptions) (path []*sessions.Record, err error) {
	if err := l.answers.take(ctx, l, 0); err != nil {
		return nil, err
	}
	err = l.process(ctx, l.namespace, func() { path = l.view.Path(l.namespace, id, options) })
	return path, err
}

// walk sets visited, and returns the sessions from the root to a response ID, oldest first, or the error of chain.Walk.
func (l *lookup) walk(ctx context.Context, id string, options chain.WalkOptions) ([]*sessions.Record, error) {
	l.visited = l.visited[:0]
	var path []*sessions.Record
	var walkErr error
	err := l.process(ctx, l.namespace, func() {
		_, walkErr = chain.Walk(ctx, id, func(_ context.Context, id string) (chain.Turn, bool, error) {
			l.visited = append(l.visited, id)
			s := l.get(id)
			if s == nil {
				return chain.Turn{}, false, nil
			}
			path = append(path, s)
			return s.Turn, true, nil
		}, options)
	})
	if err = cmp.Or(err, walkErr); err != nil {
		return nil, err
	}
	slices.Reverse(path)
	return path, nil
}

// read returns the history of a path of sessions, or errOutdated.
func (l *lookup) read(ctx context.Context, path []*sessions.Record) (*Result, error) {
	requested := path[len(path)-1]
	result := &Result{
		Name: requested.Name, UID: requested.UID.Text(), ResponseID: requested.Turn.ID, Path: path,
	}
	var bytes int64
	err := l.process(ctx, l.namespace, func() {
		result.Conversation = l.conversation.within(path)
		result.Revision = revisionOf(path)
		result.Unchanged = l.query.Unchanged != nil && l.query.Unchanged(result)
		if l.query.NoItems || result.Unchanged {
			bytes = int64(len(path)) * walkCost
		} else {
			bytes = l.bytes(path...)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := l.answers.take(ctx, l, bytes); err != nil || l.query.NoItems || result.Unchanged {
		return result, err
	}
	overhead := int64(turnOverhead)
	if l.query.Digests {
		overhead += digestOverhead
	}
	if result.holding, err = l.shared.hold(l.namespace, len(path), overhead, l.historyBytes); err != nil {
		return nil, err
	}
	result.Turns = make([]history.TurnItems, len(path))
	err = l.readItems(ctx, path, result)
	if err == nil && l.query.Digests {
		err = l.digest(ctx, result.Turns)
	}
	if err != nil {
		result.Release()
		return nil, err
	}
	return result, nil
}

// cold is how many times as much as a cached byte a byte that must be read live costs the kube-apiserver and the operator.
const cold = 6

// bytes returns the approximate size of the history of a path, with turns that are not cached counted as cold, and those that have to be
// hashed once more. It is at most the size of the largest cached history, whatever sizes the references to snapshots say.
func (l *lookup) bytes(path ...*sessions.Record) (bytes int64) {
	for _, s := range path {
		size, snapshot := int64(s.ObjectBytes), max(0, min(s.SnapshotBytes, l.historyBytes))
		if s.Snapshot() != nil {
			size = snapshot
		}
		items := l.reader.cached(s)
		if l.query.Digests && (items == nil || !items.HasDigest()) {
			bytes += max(size, snapshot)
		}
		if items == nil {
			size *= cold
		}
		bytes += size
	}
	return min(bytes, l.historyBytes)
}

// payForSnapshot waits until the namespace may have a snapshot read to confirm a turn. Concurrent reads of a query wait separately.
func (l *lookup) payForSnapshot(ctx context.Context, s *sessions.Record) error {
	return l.answers.take(ctx, &lookup{Resolver: l.Resolver, namespace: l.namespace}, l.bytes(s))
}

func (l *lookup) readItems(ctx context.Context, path []*sessions.Record, history *Result) error {
	var missing []int
	for i, s := range path {
		items, err := history.holding.take(keyOf(s), l.reader.cached(s))
		if err != nil {
			return err
		}
		if items == nil {
			missing = append(missing, i)
		}
		history.Turns[i].ResponseID, history.Turns[i].Items = s.Turn.ID, items
	}
	if len(missing) == 0 {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsPerQuery)
	for _, i := range missing {
		group.Go(func() error {
			s := path[i]
			cached := func() *chain.Items { return l.reader.cached(s) }
			read := func() (*chain.Items, error) { return l.readLive(ctx, s) }
			items, err := history.holding.read(ctx, keyOf(s), cached, read)
			history.Turns[i].Items = items
			return err
		})
	}
	return group.Wait()
}

// readLive returns the items of a session with the spec of its record, or errOutdated.
func (l *lookup) readLive(ctx context.Context, expected *sessions.Record) (*chain.Items, error) {
	s, items, err := l.reader.getID(ctx, l.namespace, expected.Turn.ID, free)
	if err != nil {
		return nil, err
	}
	if s == nil || !s.SameSpec(&expected.Object) || s.Turn.Unreadable {
		l.set(expected.Turn.ID, s)
		return nil, fmt.Errorf("response %q: %w", expected.Turn.ID, errOutdated)
	}
	return items, nil
}
