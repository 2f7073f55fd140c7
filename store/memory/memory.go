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

// Package memory stores turns in the memory of the process: for tests, and for gateways that may lose all turns when they
// stop. Importing it is sufficient to open memory: URLs with store.Open.
package memory

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

func init() { driver.Register("memory", openURL) }

// Options are the options of New.
type Options struct {
	// Namespace is the store's namespace. Namespaces do not have to be created.
	Namespace string
	// MaxDepth is the maximum number of turns in a chain if ResolveOptions do not set one, at most store.MaxDepthLimit; 0
	// means store.DefaultMaxDepth.
	MaxDepth int
}

// New returns an empty store. Closing it discards all turns.
func New(options Options) *store.Store {
	return store.New(newDriver(options.MaxDepth), driver.Options{Namespace: options.Namespace})
}

func openURL(_ context.Context, url string) (driver.Store, driver.Options, error) {
	path, namespace, err := driver.ParseURL(url)
	if err != nil {
		return nil, driver.Options{}, err
	}
	if path != "" {
		return nil, driver.Options{}, errors.New("the URL must not have a path")
	}
	return newDriver(0), driver.Options{Namespace: namespace}, nil
}

// memory is a driver that stores turns in maps.
type memory struct {
	maxDepth int

	mu         sync.RWMutex
	namespaces map[string]map[string]*local.Session // by namespace and response ID
	// conversations are the turns by their conversation IDs. None is empty.
	conversations map[conversationKey]conversation
	stored        map[conversationKey]*storedConversation
}

func newDriver(maxDepth int) *memory {
	return &memory{
		maxDepth: maxDepth, namespaces: map[string]map[string]*local.Session{}, conversations: map[conversationKey]conversation{},
		stored: map[conversationKey]*storedConversation{},
	}
}

// Close discards all turns.
func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.namespaces)
	clear(m.conversations)
	clear(m.stored)
	return nil
}

// Get implements driver.Store.
func (m *memory) Get(ctx context.Context, namespace, responseID string) (*driver.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	turn, found := m.namespaces[namespace][responseID]
	m.mu.RUnlock()
	if !found {
		return nil, driver.NotFound(responseID)
	}
	if err := metered.Take(ctx, int64(len(turn.Request)+len(turn.Response)+len(turn.Metadata))); err != nil {
		return nil, err
	}
	return turn.Clone(), nil // stored turns are immutable
}

// Save implements driver.Store.
func (m *memory) Save(ctx context.Context, namespace string, session *driver.Session, options driver.SaveOptions) (string, error) {
	next := session.Clone()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	turns := m.namespaces[namespace]
	current := turns[next.ResponseID]
	turn, err := local.Save(current, next, options)
	if err != nil {
		return "", err
	}
	if turns == nil {
		turns = map[string]*local.Session{}
		m.namespaces[namespace] = turns
	}
	turns[next.ResponseID] = turn
	m.unlist(namespace, current)
	m.list(namespace, turn)
	return turn.Version, nil
}

// Resolve implements driver.Store. The result is always current.
func (m *memory) Resolve(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path := m.path(namespace, responseID, cmp.Or(options.Last, driver.MaxDepthLimit+1))
	return local.Resolve(ctx, responseID, options, m.maxDepth, func(context.Context, string) (*local.Session, error) {
		if len(path) == 0 {
			return nil, nil
		}
		next := path[0]
		path = path[1:]
		return next, nil
	})
}

// path returns a turn and those before it, at one time, at most a number of them. So no other tenant waits while they are processed. Stored
// turns are immutable.
func (m *memory) path(namespace, responseID string, most int) (path []*local.Session) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	turns := m.namespaces[namespace]
	for turn := turns[responseID]; turn != nil && len(path) < most; turn = turns[turn.PreviousResponseID] {
		path = append(path, turn)
	}
	return path
}

// Delete implements driver.Store. When it returns, the descendants are gone too.
func (m *memory) Delete(ctx context.Context, namespace, responseID string, options driver.DeleteOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	turns := m.namespaces[namespace]
	if _, found := turns[responseID]; !found {
		return nil
	}
	var children map[string][]string
	if options.Cascade {
		children = childrenOf(turns)
	}
	for queue := []string{responseID}; len(queue) > 0; {
		id := queue[0]
		m.unlist(namespace, turns[id])
		delete(turns, id)
		queue = append(queue[1:], children[id]...)
		delete(children, id) // so that a cycle ends
	}
	return nil
}

// childrenOf returns the response IDs of the children of each turn that has any.
func childrenOf(turns map[string]*local.Session) map[string][]string {
	children := map[string][]string{}
	for id, turn := range turns {
		if parent := turn.PreviousResponseID; parent != "" {
			children[parent] = append(children[parent], id)
		}
	}
	return children
}
