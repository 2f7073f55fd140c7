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
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

// TestConversationListPages: the pages of a list through HTTP, and a table of an incomplete page warns that it is one.
func TestConversationListPages(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	page := func(query string) (ids []string, next string) {
		t.Helper()
		code, _, body := ts.get(t, lists+"all?"+query, "alice", "")
		var list resolvev1alpha1.ConversationLists
		if err := json.Unmarshal([]byte(body), &list); code != http.StatusOK || err != nil {
			t.Fatalf("got %d and %v: %s", code, err, body)
		}
		for _, c := range list.Conversations {
			ids = append(ids, c.ConversationID)
		}
		return ids, list.Next
	}
	const states = "&state=Active,Archived"
	first, next := page("limit=2&sort=activity" + states)
	second, last := page("limit=2&sort=activity" + states + "&after=" + next)
	if diff := cmp.Diff([][]string{{"conv_1", "conv_2"}, {"conv_3"}, {""}}, [][]string{first, second, {last}}); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	for query, want := range map[string]string{
		"sort=updated" + states + "&after=" + next:            "another list",
		"sort=activity&order=asc" + states + "&after=" + next: "other order",
		"sort=activity&after=" + next:                         "another list",
	} {
		if code, _, body := ts.get(t, lists+"all?"+query, "alice", ""); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: got %d, want 400 and %q: %s", query, code, want, body)
		}
	}
	for query, want := range map[string]bool{"limit=2" + states: true, "limit=3" + states: false, "limit=1": true, "limit=2": false} {
		_, header, _ := ts.get(t, lists+"all?"+query, "alice", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if got := header.Get("Warning"); (got != "") != want {
			t.Errorf("%s: the warning is %q", query, got)
		}
	}
}

// TestFitting: a page has at least one entry, and no more when its texts, as JSON, have reached the limit.
func TestFitting(t *testing.T) {
	texts := func(s string) []string { return []string{s, s} }
	half, tiny := strings.Repeat("x", maxPageText/2), "x"
	for name, tc := range map[string]struct {
		entries []string
		want    int
	}{
		"none":    {nil, 0},
		"short":   {[]string{tiny, tiny, tiny}, 3},
		"long":    {[]string{half, tiny}, 1},
		"longer":  {[]string{half + half, half}, 1},
		"later":   {[]string{tiny, half, tiny}, 2},
		"escaped": {[]string{strings.Repeat("<", maxPageText/12+1), tiny}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fitting(tc.entries, texts); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestConversationListsAreCounted: the lists that a namespace has not read yet count towards its share, and leave room for those of others.
func TestConversationListsAreCounted(t *testing.T) {
	kube, options := newKubeAPIServer(t), resolve.DefaultOptions()
	options.InFlightBytes, options.InFlightRequests = 12*rowBytes, 10_000
	s := &conversationLists{view: newNamedView(t, kube, time.Hour), share: resolve.New(newView(t, kube, time.Hour), nil, nil, options).Share}
	get := func(ctx context.Context, namespace string) error {
		_, err := s.Get(request.WithNamespace(inHandler(ctx), namespace), "all", &resolvev1alpha1.ConversationListsOptions{})
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

// TestDescendantsAreCounted: a search for descendants counts towards the rate of its namespace, even if there are too many of them.
func TestDescendantsAreCounted(t *testing.T) {
	kube := newKubeAPIServer(t)
	var cost int64
	s := &conversationLists{
		view: newNamedView(t, kube, time.Hour),
		share: func(_ context.Context, _ string, share resolve.Share, compute func()) (func(), error) {
			cost += share.Cost
			compute()
			return func() {}, nil
		},
	}
	_, err := s.Get(request.WithNamespace(inHandler(t.Context()), "team-a"), "all",
		&resolvev1alpha1.ConversationListsOptions{ParentConversationID: "conv_2", Descendants: true})
	if want := int64(pageCost + descendantCost); err != nil || cost != want {
		t.Errorf("got the cost %d and %v, want %d", cost, err, want)
	}
}

// TestConversationStatus: an error of a conversation has its code, as those of chains do.
func TestConversationStatus(t *testing.T) {
	var status *apierrors.StatusError
	if err := conversationStatus("all", driver.TooManyDescendants("conv_1")); !errors.As(err, &status) {
		t.Fatal(err)
	}
	got := status.ErrStatus
	if got.Code != http.StatusUnprocessableEntity || len(got.Details.Causes) != 1 || got.Details.RetryAfterSeconds != 0 ||
		string(got.Details.Causes[0].Type) != "session.conversation.limit_exceeded" || !strings.Contains(got.Message, `"conv_1" has more than 10000`) {
		t.Errorf("got %+v", got)
	}
}

// TestConversationListsNeedTheView: a replica whose view is not synced, or is stale, answers that a retry may help.
func TestConversationListsNeedTheView(t *testing.T) {
	kube := newKubeAPIServer(t)
	stale := newNamedView(t, kube, 100*time.Millisecond)
	closeServer(kube)
	testutil.Eventually(t, func(context.Context) error {
		if !stale.IsStale() {
			return errors.New("the view is not stale yet")
		}
		return nil
	})
	for name, view := range map[string]*conversations.View{"not synced": conversations.NewView(time.Hour, clock.RealClock{}), "stale": stale} {
		s := &conversationLists{view: view, share: shareAll}
		_, err := s.Get(request.WithNamespace(inHandler(t.Context()), "team-a"), "all", &resolvev1alpha1.ConversationListsOptions{})
		if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !retry || seconds != 1 {
			t.Errorf("%s: got %v, want a retryable 503", name, err)
		}
		if want := "Conversations"; !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}
