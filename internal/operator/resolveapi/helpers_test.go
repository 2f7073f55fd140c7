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
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

// inHandler returns a context as handlers have it, until ctx is done.
func inHandler(ctx context.Context) context.Context {
	inside := make(chan context.Context)
	go withHandled(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		inside <- req.Context()
		<-ctx.Done()
	})).ServeHTTP(nil, (&http.Request{}).WithContext(ctx))
	return <-inside
}

const testUID = "0c3f2b1e-6f0a-4a35-9a53-7d0f6f6f0001"

// makeHistory returns a history of turns resp_1, resp_2 and so on.
func makeHistory(turns ...*chain.Items) *resolve.Result {
	h := &resolve.Result{UID: testUID}
	for i, items := range turns {
		h.Turns = append(h.Turns, history.TurnItems{ResponseID: fmt.Sprintf("resp_%d", i+1), Items: items})
		h.ResponseID = h.Turns[i].ResponseID
		h.Name = strings.ReplaceAll(h.ResponseID, "_", ".")
	}
	return h
}

// makeConversation returns the history of the conversation conv_1 with these turns, of which the item 1 of the first is hidden.
func makeConversation(turns ...*chain.Items) *resolve.Result {
	h := makeHistory(turns...)
	h.Conversation = &resolve.Conversation{
		Name: "conv.1", UID: "0c3f2b1e-6f0a-4a35-9a53-7d0f6f6f0002", ID: "conv_1", Hidden: []driver.HiddenItem{{ResponseID: "resp_1", Number: 1}},
	}
	for i, turn := range h.Turns {
		h.Path = append(h.Path, &sessions.Record{
			Turn:    chain.Turn{ID: turn.ResponseID, Status: "completed"},
			Listing: sessions.Listing{CreatedAt: created.Unix(), CompletedAt: created.Unix() + 1},
		})
		if i > 0 {
			h.Path[i].Turn.Previous = h.Turns[i-1].ResponseID
		}
	}
	return h
}

// conversationStub returns the histories of the conversation conv_1, which has two turns, and of conv_2, which has none.
func conversationStub(t testing.TB) ResolveFunc {
	conversation := makeConversation(
		testutil.FlattenTurn(t, "be brief", `{"role":"user","content":"hi"}`, `{"n":"hidden"}`), testutil.FlattenTurn(t, "", `{ "n" : 1.0 }`))
	empty := makeConversation()
	empty.UID, empty.Conversation = "", &resolve.Conversation{Name: "conv.2", UID: testUID, ID: "conv_2"}
	return func(_ context.Context, namespace, name string, _ uint64, query resolve.Query) (*resolve.Result, error) {
		result := map[string]*resolve.Result{"conv_1": conversation, "conv.1": conversation, "conv_2": empty}[name]
		switch {
		case namespace != "team-a":
			return nil, fmt.Errorf("namespace %q was resolved", namespace)
		case name == "conv_3":
			return nil, &chain.Error{Rule: chain.NotFound, ResponseID: "resp_7", PreviousResponseID: "resp_7"}
		case result == nil:
			return nil, resolve.ErrNoConversation
		}
		result = new(*result)
		if result.Unchanged = query.Unchanged != nil && query.Unchanged(result); query.NoItems || result.Unchanged {
			result.Turns = nil
		}
		return result, nil
	}
}
