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
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// Resolver answers queries. It is safe for concurrent use.
//
// A chain that the view finds intact is answered from the view and the cache of items, and what that lacks is read live. Whatever else the view says may be old, so that it is confirmed: each turn that the walk passed is read
// live, and the walk goes again over what was read, until it succeeds or no turn is unconfirmed.
type Resolver struct {
	view         *sessions.View
	live         *live
	historyBytes int64
	inFlight     *semaphore.Weighted // bytes of items, of all queries
	unreadable   func(*sessions.Session)
}

// Resolve returns the history of a turn, which is named by its response ID or, where there is no turn of that ID, by the
// object name of its ResponseSession.
//
// It returns a *chain.Error where the chain does not resolve, ErrTooLarge or ErrBusy where the history would take more
// memory than there is for it, the API server's error where a live read fails, and the context's error once ctx is done.
// Release the history when it is no longer needed.
func (r *Resolver) Resolve(ctx context.Context, namespace, name string, query Query) (*History, error) {
	l := &lookup{Resolver: r, namespace: namespace, confirmed: map[string]*sessions.Session{}}
	id, err := l.responseID(ctx, name)
	if err != nil {
		return nil, err
	}
	fresh := r.view.Reflects(query.MinResourceVersion)
	if path := r.view.Path(namespace, id, query.MaxDepth); path != nil && fresh {
		history, err := l.read(ctx, path)
		if !errors.Is(err, errOutdated) {
			return history, err
		}
	}
	for {
		path, walkErr := l.walk(ctx, id, query)
		if walkErr != nil && !isChainError(walkErr) {
			return nil, walkErr
		}
		if walkErr != nil || !fresh {
			if unconfirmed := l.unconfirmed(); len(unconfirmed) > 0 {
				if err := l.confirm(ctx, unconfirmed); err != nil {
					return nil, err
				}
				continue
			}
		}
		if walkErr != nil {
			l.report(walkErr)
			return nil, walkErr
		}
		history, err := l.read(ctx, path)
		if !errors.Is(err, errOutdated) {
			return history, err
		}
	}
}

// report tells of a snapshot outside its object that turned out to be unreadable, unless the view knows so.
func (l *lookup) report(walkErr error) {
	chainError, _ := errors.AsType[*chain.Error](walkErr)
	s := l.confirmed[chainError.ResponseID]
	if l.unreadable == nil || chainError.Rule != chain.SnapshotUnreadable || s == nil || s.Snapshot == nil {
		return
	}
	if known, found := l.view.Get(s.Namespace, s.Name); !found || !known.SameSpec(s) || !known.Turn.Unreadable {
		l.unreadable(s)
	}
}

// ReadSnapshot reads the snapshot of a session that has one outside its object, and reports whether it can be turned into
// input items. It returns an error where the session is not what the API server has.
func (r *Resolver) ReadSnapshot(ctx context.Context, s *sessions.Session) (bool, error) {
	current, _, err := r.live.get(ctx, s.Namespace, s.Name)
	switch {
	case errors.Is(err, ErrTooLarge):
		return false, nil
	case err != nil:
		return false, err
	case current == nil || !current.SameSpec(s):
		return false, fmt.Errorf("session %s/%s: %w", s.Namespace, s.Name, errOutdated)
	}
	return !current.Turn.Unreadable, nil
}

func isChainError(err error) bool {
	_, ok := errors.AsType[*chain.Error](err)
	return ok
}

// errOutdated says that a session has changed since it was walked over, and that the lookup knows so now.
var errOutdated = errors.New("session has changed meanwhile")

// lookup is the state of one call of Resolve.
type lookup struct {
	*Resolver
	namespace string

	mu        sync.Mutex
	confirmed map[string]*sessions.Session // by response ID; nil for turns that are not there
	visited   []string
}

// responseID returns the response ID that a name stands for. A response ID wins over an object name, so that a name the
// view knows as an object's only is first looked for live as an ID.
func (l *lookup) responseID(ctx context.Context, name string) (string, error) {
	if _, found := l.view.Lookup(l.namespace, name); found || !mayBeObjectName(name) {
		return name, nil
	}
	s, _, err := l.live.getID(ctx, l.namespace, name)
	if err != nil {
		return "", err
	}
	l.confirmed[name] = s
	if s != nil {
		return name, nil
	}
	s, found := l.view.Get(l.namespace, name)
	if !found {
		if s, _, err = l.live.get(ctx, l.namespace, name); err != nil {
			return "", err
		}
	}
	if s == nil || s.Misnamed {
		return name, nil
	}
	return s.Turn.ID, nil
}

// get returns what a live read said of a turn, else what the view says.
func (l *lookup) get(id string) *sessions.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, found := l.confirmed[id]; found {
		return s
	}
	s, _ := l.view.Lookup(l.namespace, id)
	return s
}

func (l *lookup) set(id string, s *sessions.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed[id] = s
}

func (l *lookup) walk(ctx context.Context, id string, query Query) ([]*sessions.Session, error) {
	l.visited = l.visited[:0]
	found := map[string]*sessions.Session{}
	turns, err := chain.Walk(ctx, id, func(_ context.Context, id string) (chain.Turn, bool, error) {
		l.visited = append(l.visited, id)
		s := l.get(id)
		if s == nil {
			return chain.Turn{}, false, nil
		}
		found[id] = s
		return s.Turn, true, nil
	}, chain.WalkOptions{MaxDepth: query.MaxDepth, IncludeIncomplete: query.IncludeIncomplete})
	path := make([]*sessions.Session, len(turns))
	for i, turn := range turns {
		path[i] = found[turn.ID]
	}
	return path, err
}

func (l *lookup) unconfirmed() []string {
	var ids []string
	for _, id := range l.visited {
		if _, done := l.confirmed[id]; !done {
			ids = append(ids, id)
		}
	}
	return ids
}

// confirm reads turns live.
func (l *lookup) confirm(ctx context.Context, ids []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsPerQuery)
	for _, id := range ids {
		group.Go(func() error {
			s := l.get(id)
			// Whether a snapshot outside the object can be read, its metadata do not say.
			if s != nil && (s.Snapshot == nil || !s.Turn.Unreadable) {
				current, err := l.live.isCurrent(ctx, s)
				if err != nil {
					return err
				}
				if current {
					l.set(id, s)
					return nil
				}
			}
			s, _, err := l.live.getID(ctx, l.namespace, id)
			if err != nil {
				return err
			}
			l.set(id, s)
			return nil
		})
	}
	return group.Wait()
}

// read returns the history that a path of sessions makes, or errOutdated.
func (l *lookup) read(ctx context.Context, path []*sessions.Session) (*History, error) {
	asked := path[len(path)-1]
	history := &History{Name: asked.Name, UID: asked.UID, ResponseID: asked.Turn.ID, Turns: make([]history.TurnItems, len(path))}
	history.memory.inFlight, history.memory.limit = l.inFlight, l.historyBytes
	if err := l.readItems(ctx, path, history); err != nil {
		history.Release()
		return nil, err
	}
	return history, nil
}

func (l *lookup) readItems(ctx context.Context, path []*sessions.Session, history *History) error {
	var missing []int
	for i, s := range path {
		history.Turns[i].ResponseID = s.Turn.ID
		items, found := l.live.cached(s)
		if !found {
			missing = append(missing, i)
			continue
		}
		if err := history.memory.take(items); err != nil {
			return err
		}
		history.Turns[i].Items = items
	}
	if len(missing) == 0 {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsPerQuery)
	for _, i := range missing {
		group.Go(func() error {
			s, items, err := l.live.getID(ctx, l.namespace, path[i].Turn.ID)
			if err != nil {
				return err
			}
			if s == nil || !s.SameSpec(path[i]) || s.Turn.Unreadable {
				l.set(path[i].Turn.ID, s)
				return fmt.Errorf("response %q: %w", path[i].Turn.ID, errOutdated)
			}
			history.Turns[i].Items = items
			return history.memory.take(items)
		})
	}
	return group.Wait()
}
