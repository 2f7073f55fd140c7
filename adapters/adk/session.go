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

package adk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/catena-dev/catena/store"
)

// body is the request of the turn of an event.
type body struct {
	Input []item `json:"input"`
}

// item is the input item for an event.
type item struct {
	Type  string         `json:"type"`
	Event *session.Event `json:"event"`
}

// itemType is the type of the items of events. No engine knows it: histories of sessions are not for the Responses API.
const itemType = "adk_event"

// turnID returns the response ID of an event. Event IDs are unique only within their session.
func turnID(k key, eventID string) string {
	sum := sha256.Sum256([]byte(k.conversationID() + ":" + eventID))
	return "adk_" + hex.EncodeToString(sum[:])
}

// errForeign is the cause of errors from what this service has not stored.
var errForeign = errors.New("something else has stored it")

// eventsOf returns the events of a history.
func eventsOf(history *store.History) (events, error) {
	all := make(events, 0, len(history.Items))
	for _, raw := range history.Items {
		var item item
		if err := json.Unmarshal(raw, &item); err != nil {
			return nil, fmt.Errorf("unable to decode an event: %w: %w", errForeign, err)
		}
		if item.Type != itemType || item.Event == nil {
			return nil, fmt.Errorf("the session has an item of the type %q, which is not an event: %w", item.Type, errForeign)
		}
		all = append(all, item.Event)
	}
	return all, nil
}

// handle is a session as it was when it was read, with what has been appended through this handle.
type handle struct {
	key

	mu      sync.RWMutex
	last    string         // the turn of the last event, empty if there is none
	own     map[string]any // the stored state of the session, without what it shares
	state   map[string]any
	events  events
	updated time.Time
}

var _ session.Session = &handle{}

func (h *handle) ID() string      { return h.id }
func (h *handle) AppName() string { return h.app }
func (h *handle) UserID() string  { return h.user }

func (h *handle) State() session.State { return (*state)(h) }

func (h *handle) Events() session.Events {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Clip(h.events)
}

func (h *handle) LastUpdateTime() time.Time {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.updated
}

// append adds an event that was stored. The lock must be held.
func (h *handle) append(responseID string, event *session.Event, own map[string]any) {
	h.last, h.own, h.updated = responseID, own, event.Timestamp
	h.events = append(h.events, withoutTemp(event))
	maps.Copy(h.state, event.Actions.StateDelta)
}

// keepSince removes the events before a time, which may be zero. Events are in the order of their times.
func (h *handle) keepSince(t time.Time) {
	first := slices.IndexFunc(h.events, func(e *session.Event) bool { return !e.Timestamp.Before(t) })
	if first < 0 {
		first = len(h.events)
	}
	h.events = h.events[first:]
}

// state is the state of a handle. Set changes only the handle: what is to be stored is in the StateDelta of an event.
type state handle

func (s *state) Get(name string) (any, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, found := s.state[name]
	if !found {
		return nil, session.ErrStateKeyNotExist
	}
	return value, nil
}

func (s *state) Set(name string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[name] = value
	return nil
}

func (s *state) All() iter.Seq2[string, any] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.All(maps.Clone(s.state))
}

type events []*session.Event

func (e events) All() iter.Seq[*session.Event] { return slices.Values(e) }
func (e events) Len() int                      { return len(e) }

func (e events) At(i int) *session.Event {
	if i < 0 || i >= len(e) {
		return nil
	}
	return e[i]
}
