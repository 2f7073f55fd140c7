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

// Package memory keeps turns in the process: for tests, and for gateways that may forget everything when they end.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/catena-dev/catena/internal/localstore"
	"github.com/catena-dev/catena/store"
)

// Options are the options of New.
type Options struct {
	// Namespace is the store's namespace.
	Namespace string
	// MaxDepth is how many turns a chain may have where ResolveOptions name no limit, at most store.MaxDepthLimit; 0 is
	// store.DefaultMaxDepth.
	MaxDepth int
}

// Store keeps turns in maps.
type Store struct {
	*turns
	namespace string
	owner     bool // of the turns, which end when it is closed
}

var _ store.Store = &Store{}

// turns are those of all namespaces.
type turns struct {
	maxDepth int

	mu         sync.RWMutex
	namespaces map[string]map[string]*localstore.Turn // by namespace and response ID; nil once the store is closed
}

// errClosed is the error of a store that is used after it was closed.
var errClosed = errors.New("the store is closed")

// New returns an empty store.
func New(options Options) *Store {
	shared := &turns{maxDepth: options.MaxDepth, namespaces: map[string]map[string]*localstore.Turn{}}
	return &Store{turns: shared, namespace: options.Namespace, owner: true}
}

// InNamespace returns the store of another namespace, which need not be created.
func (s *Store) InNamespace(namespace string) store.Store {
	return &Store{turns: s.turns, namespace: namespace}
}

// Close forgets all turns.
func (s *Store) Close() error {
	if !s.owner {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces = nil
	return nil
}

// usable returns why nothing can be done now. Its caller holds the lock.
func (s *Store) usable(ctx context.Context) error {
	if s.namespaces == nil {
		return errClosed
	}
	return ctx.Err()
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, responseID string) (*store.Session, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("unable to get response %q: %w", responseID, err)
	}
	turn, found := s.namespaces[s.namespace][responseID]
	if !found {
		return nil, localstore.NotFound(responseID)
	}
	return turn.Clone(), nil
}

// Save implements store.Store.
func (s *Store) Save(ctx context.Context, session *store.Session, options store.SaveOptions) error {
	next, err := localstore.Prepare(ctx, session, options)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("unable to save response %q: %w", session.ResponseID, err)
	}
	turn, err := localstore.Decide(s.namespaces[s.namespace][next.ResponseID], next, options)
	if err != nil {
		return err
	}
	if s.namespaces[s.namespace] == nil {
		s.namespaces[s.namespace] = map[string]*localstore.Turn{}
	}
	s.namespaces[s.namespace][next.ResponseID] = turn
	session.Version = turn.Version
	return nil
}

// Resolve implements store.Store. Every answer is the newest.
func (s *Store) Resolve(ctx context.Context, responseID string, options store.ResolveOptions) (*store.History, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("unable to resolve response %q: %w", responseID, err)
	}
	return localstore.Resolve(ctx, responseID, options, s.maxDepth, func(_ context.Context, id string) (*localstore.Turn, error) {
		return s.namespaces[s.namespace][id], nil
	})
}

// Delete implements store.Store. The descendants are gone when it has returned.
func (s *Store) Delete(ctx context.Context, responseID string, options store.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("unable to delete response %q: %w", responseID, err)
	}
	stored := s.namespaces[s.namespace]
	if _, found := stored[responseID]; !found {
		return nil
	}
	var children map[string][]string
	if options.Cascade {
		children = childrenOf(stored)
	}
	for doomed := []string{responseID}; len(doomed) > 0; {
		id := doomed[0]
		delete(stored, id)
		doomed = append(doomed[1:], children[id]...)
		delete(children, id) // so that a cycle ends
	}
	return nil
}

// childrenOf returns the response IDs of the children by that of their parent.
func childrenOf(stored map[string]*localstore.Turn) map[string][]string {
	children := map[string][]string{}
	for id, turn := range stored {
		if parent := turn.PreviousResponseID; parent != "" {
			children[parent] = append(children[parent], id)
		}
	}
	return children
}
