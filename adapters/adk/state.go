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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/catena-dev/catena/store"
)

// states are the parts of a state, or of a change of it, by who shares them. Their keys have their prefixes. What is temporary is not stored.
type states struct{ app, user, session map[string]any }

// splitState returns the parts of a state as they are when they have been stored.
func splitState(state map[string]any) (parts states, err error) {
	parts = states{map[string]any{}, map[string]any{}, map[string]any{}}
	for name, value := range state {
		switch {
		case strings.HasPrefix(name, session.KeyPrefixTemp):
		case strings.HasPrefix(name, session.KeyPrefixApp):
			parts.app[name] = value
		case strings.HasPrefix(name, session.KeyPrefixUser):
			parts.user[name] = value
		default:
			parts.session[name] = value
		}
	}
	for _, part := range []*map[string]any{&parts.app, &parts.user, &parts.session} {
		raw, err := json.Marshal(*part)
		if err != nil {
			return states{}, fmt.Errorf("unable to encode the state: %w", err)
		}
		stored := map[string]any{}
		if err := json.Unmarshal(raw, &stored); err != nil {
			return states{}, fmt.Errorf("unable to decode the state: %w", err)
		}
		*part = stored
	}
	return parts, nil
}

// share changes the states of an app and of a user with an event of the given time. Concurrent changes of different members all take effect. If the
// event is repeated, what later events have set stays: it may have been shared before them.
//
// The error is ErrInvalid only if a repetition would not help.
func (s *service) share(ctx context.Context, k key, parts states, at time.Time, repeated bool) error {
	all := []error{s.set(ctx, k.ofApp(), parts.app, at, repeated), s.set(ctx, k.ofUser(), parts.user, at, repeated)}
	isFinal := func(err error) bool { return err == nil || errors.Is(err, store.ErrInvalid) }
	if temporary := slices.DeleteFunc(slices.Clone(all), isFinal); len(temporary) > 0 {
		return errors.Join(temporary...)
	}
	return errors.Join(all...)
}

func (s *service) set(ctx context.Context, k key, state map[string]any, at time.Time, repeated bool) error {
	if len(state) == 0 {
		return nil
	}
	if err := s.ensure(ctx, k); err != nil {
		return err
	}
	members, err := membersOf(state, at)
	if err == nil && repeated {
		err = s.keepLater(ctx, k, members, at)
	}
	if err != nil || len(members) == 0 {
		return err
	}
	_, err = s.conversations.Patch(ctx, k.conversationID(), store.ConversationPatch{MetadataMembers: members})
	return err
}

// keepLater removes the members that have been set after a time.
func (s *service) keepLater(ctx context.Context, k key, members map[string]json.RawMessage, at time.Time) error {
	all, err := s.stored(ctx, k)
	if err != nil {
		return err
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool {
		var stored [2]json.RawMessage
		var set time.Time // unknown in a member of an earlier version
		return json.Unmarshal(all[name], &stored) == nil && json.Unmarshal(stored[1], &set) == nil && set.After(at)
	})
	return nil
}

// membersOf returns a state as members of the metadata of a conversation, each with the time of the event that sets it.
func membersOf(state map[string]any, at time.Time) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	for name, value := range state {
		raw, err := json.Marshal([]any{value, at}) // a null would remove the member
		if err != nil {
			return nil, err
		}
		members[name] = raw
	}
	return members, nil
}

// checkShared returns an error if the states of an app or of a user would become too large.
func (s *service) checkShared(ctx context.Context, k key, parts states, at time.Time) error {
	return errors.Join(s.check(ctx, k.ofApp(), parts.app, at), s.check(ctx, k.ofUser(), parts.user, at))
}

func (s *service) check(ctx context.Context, k key, state map[string]any, at time.Time) error {
	if len(state) == 0 {
		return nil
	}
	all, err := s.stored(ctx, k)
	if err != nil {
		return err
	}
	members, err := membersOf(state, at)
	if err != nil {
		return err
	}
	maps.Copy(all, members)
	raw, err := json.Marshal(all)
	if err == nil && len(raw) > store.MaxConversationMetadataBytes {
		err = fmt.Errorf("the state in conversation %q would have %d bytes: at most %d are allowed: %w",
			k.conversationID(), len(raw), store.MaxConversationMetadataBytes, store.ErrInvalid)
	}
	return err
}

// shared returns the state that a session shares with others.
func (s *service) shared(ctx context.Context, k key) (map[string]any, error) {
	state := map[string]any{}
	for _, k := range []key{k.ofApp(), k.ofUser()} {
		members, err := s.stored(ctx, k)
		if err != nil {
			return nil, err
		}
		for name, raw := range members {
			var value [1]any
			if err := json.Unmarshal(raw, &value); err != nil {
				return nil, unreadableState(k, err)
			}
			state[name] = value[0]
		}
	}
	return state, nil
}

// stored returns the members that are stored of the state of an app or a user, as membersOf returns them.
func (s *service) stored(ctx context.Context, k key) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	conversation, err := s.conversations.Get(ctx, k.conversationID())
	switch {
	case errors.Is(err, store.ErrConversationNotFound):
		return members, nil
	case err != nil:
		return nil, err
	case conversation.Metadata == nil:
		return members, nil
	}
	if err := json.Unmarshal(conversation.Metadata, &members); err != nil {
		return nil, unreadableState(k, err)
	}
	return members, nil
}

func unreadableState(k key, err error) error {
	return fmt.Errorf("unable to read the state in conversation %q: %w", k.conversationID(), err)
}

// withoutTemp returns an event without temporary state.
func withoutTemp(event *session.Event) *session.Event {
	kept := maps.Clone(event.Actions.StateDelta)
	maps.DeleteFunc(kept, func(name string, _ any) bool { return strings.HasPrefix(name, session.KeyPrefixTemp) })
	stored := *event
	stored.Actions.StateDelta = kept
	return &stored
}
