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

package resolveapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestConversationPages: the pages of a conversation through HTTP, and a table of an incomplete page warns that it is one.
func TestConversationPages(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	page := func(query string) (ids []string, next string) {
		t.Helper()
		code, _, body := ts.get(t, conversationsOf+query, "alice", "")
		var list resolvev1alpha1.ConversationTurns
		if err := json.Unmarshal([]byte(body), &list); code != http.StatusOK || err != nil {
			t.Fatalf("got %d and %v: %s", code, err, body)
		}
		for _, turn := range list.Turns {
			ids = append(ids, turn.ResponseID)
		}
		return ids, list.Next
	}
	first, next := page("conv_1?limit=1")
	second, last := page("conv.1?limit=1&after=" + next) // the object name is the same conversation
	if diff := cmp.Diff([][]string{{"resp_2"}, {"resp_1"}, {""}}, [][]string{first, second, {last}}); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	for query, want := range map[string]string{
		"conv_2?after=" + next:                "another list",
		"conv_1?order=desc&after=" + next:     "other order",
		"conv_1?limit=1&after=" + next + "&x": "is unknown",
	} {
		if code, _, body := ts.get(t, conversationsOf+query, "alice", ""); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: got %d, want 400 and %q: %s", query, code, want, body)
		}
	}
	for query, want := range map[string]bool{"conv_1?limit=1": true, "conv_1?limit=2": false} {
		_, header, _ := ts.get(t, conversationsOf+query, "alice", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if got := header.Get("Warning"); (got != "") != want {
			t.Errorf("%s: the warning is %q", query, got)
		}
	}
}

// TestLongTurnIDs: a page of the turns of a history ends when its IDs are long enough, and the next one continues there.
func TestLongTurnIDs(t *testing.T) {
	history := &resolve.Result{Conversation: &resolve.Conversation{ID: "conv_1", Name: "conv.1"}}
	var want []string
	for i := range 1000 {
		id := strings.Repeat("é", maxPageText/800) + strconv.Itoa(i)
		want = append(want, id)
		history.Path = append(history.Path, &sessions.Record{Turn: chain.Turn{ID: id}})
	}
	s := &conversationTurns{share: shareAll, resolve: func(context.Context, string, string, uint64, resolve.Query) (*resolve.Result, error) {
		return history, nil
	}}
	for _, order := range []string{"asc", "desc"} {
		var got []string
		pages := 0
		for o := (&resolvev1alpha1.ConversationTurnsOptions{History: true, Limit: 1000, Order: order}); pages == 0 || o.After != ""; pages++ {
			object, err := s.Get(request.WithNamespace(inHandler(t.Context()), "team-a"), "conv_1", o)
			if err != nil {
				t.Fatal(err)
			}
			list := object.(*resolvev1alpha1.ConversationTurns)
			for _, turn := range list.Turns {
				got = append(got, turn.ResponseID)
			}
			o.After = list.Next
		}
		if pages != 3 || !slices.Equal(want, got) {
			t.Errorf("%s: got %d turns on %d pages, want 1000 on 3", order, len(got), pages)
		}
		slices.Reverse(want)
	}
}

// TestConversationsAreCounted: the lists that a namespace has not read yet count towards its share, and leave room for those of others.
func TestConversationsAreCounted(t *testing.T) {
	view, options := newView(t, newKubeAPIServer(t), time.Hour), resolve.DefaultOptions()
	options.InFlightBytes, options.InFlightRequests = 12*rowBytes, 10_000
	s := &conversationTurns{view: view, share: resolve.New(view, nil, nil, options).Share}
	get := func(ctx context.Context, namespace string) error {
		_, err := s.Get(request.WithNamespace(inHandler(ctx), namespace), "conv_1", &resolvev1alpha1.ConversationTurnsOptions{})
		return err
	}
	reading, read := context.WithCancel(t.Context())
	for range 1000 {
		if err := get(reading, "team-a"); err != nil {
			break
		}
	}
	if err := get(reading, "team-a"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("want TooManyRequests, got %v", err)
	}
	if err := get(t.Context(), "team-b"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	read()
	testutil.Eventually(t, func(context.Context) error {
		done, read := context.WithCancel(t.Context())
		defer read()
		return get(done, "team-a")
	})
}

// TestConversationsNeedTheView: a replica whose view is not synced, or is stale, answers that a retry may help.
func TestConversationsNeedTheView(t *testing.T) {
	kube := newKubeAPIServer(t)
	stale := newView(t, kube, 100*time.Millisecond)
	closeServer(kube)
	testutil.Eventually(t, func(context.Context) error {
		if !stale.IsStale() {
			return errors.New("the view is not stale yet")
		}
		return nil
	})
	for name, view := range map[string]*sessions.View{"not synced": sessions.NewView(64, time.Hour), "stale": stale} {
		s := &conversationTurns{view: view, share: shareAll}
		_, err := s.Get(request.WithNamespace(inHandler(t.Context()), "team-a"), "conv_1", &resolvev1alpha1.ConversationTurnsOptions{})
		if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !retry || seconds != 1 {
			t.Errorf("%s: got %v, want a retryable 503", name, err)
		}
	}
}
