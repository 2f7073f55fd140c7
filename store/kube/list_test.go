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

package kube_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestListNotServed: an operator that does not serve lists is reported at once, with what to do. If no operator serves anything, a retry can
// help.
func TestListNotServed(t *testing.T) {
	ofTurns := func(s *store.Store) error {
		_, err := s.List(t.Context(), "conv_1", store.ListOptions{})
		return err
	}
	ofConversations := func(s *store.Store) error {
		_, err := s.Conversations().List(t.Context(), store.ConversationListOptions{})
		return err
	}
	for name, tc := range map[string]struct {
		list      func(s *store.Store) error
		notServed string
		want      error
		retryable bool
		message   string
	}{
		"turns, older operator":         {ofTurns, "/conversationturns/", store.ErrUnsupported, false, "upgrade the operator"},
		"turns, no operator":            {ofTurns, "/apis/resolve.catena.dev/", store.ErrUnreachable, true, "at present"},
		"conversations, older operator": {ofConversations, "/conversationlists/", store.ErrUnsupported, false, "upgrade the operator"},
		"conversations, no operator":    {ofConversations, "/apis/resolve.catena.dev/", store.ErrUnreachable, true, "at present"},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			s := openThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if strings.Contains(r.URL.Path, "/conversationturns/") || strings.Contains(r.URL.Path, "/conversationlists/") {
					sent++
				}
				if !strings.Contains(r.URL.Path, tc.notServed) {
					return next.RoundTrip(r)
				}
				return answer(r, http.StatusNotFound), nil
			})
			err := tc.list(s)
			if !errors.Is(err, tc.want) || store.IsRetryable(err) != tc.retryable || !strings.Contains(err.Error(), tc.message) || sent != 1 {
				t.Errorf("got %v after %d requests, want one and %v", err, sent, tc.want)
			}
		})
	}
}

// TestListByObjectName: the ID of a conversation can be the object name of another one, which is listed nevertheless.
func TestListByObjectName(t *testing.T) {
	s := open(t, kube.Options{})
	const dotted = "conv.1"
	impostor := testturn.Make("resp_1", "")
	impostor.ConversationID = v1alpha1.ObjectName(dotted)
	save(t, s, impostor)
	list, err := s.List(t.Context(), dotted, store.ListOptions{Version: impostor.Version})
	if err != nil || len(list.Turns) != 0 {
		t.Errorf("got %+v and error %v, want no turns", list, err)
	}
	turn := testturn.Make("resp_2", "")
	turn.ConversationID = dotted
	save(t, s, turn)
	for _, want := range []*store.Session{impostor, turn} {
		list, err := s.List(t.Context(), want.ConversationID, store.ListOptions{Version: turn.Version})
		if err != nil || len(list.Turns) != 1 || list.Turns[0].ResponseID != want.ResponseID {
			t.Errorf("got %+v and error %v, want %s", list, err, want.ResponseID)
		}
	}
}

// TestListInvalidNamespace: a namespace cannot lead to another path.
func TestListInvalidNamespace(t *testing.T) {
	s := open(t, kube.Options{})
	if _, err := s.InNamespace("a/b").List(t.Context(), "conv_1", store.ListOptions{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}
