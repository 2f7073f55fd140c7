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

package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"
)

func newConversations() conversations.ConversationService {
	return conversations.NewConversationService(option.WithBaseURL(alternating+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

// within returns the parameters for a response in a conversation.
func within(conversation, input string) responses.ResponseNewParams {
	p := params("", user(input))
	p.Conversation = responses.ResponseNewParamsConversationUnion{OfString: param.NewOpt(conversation)}
	return p
}

// TestConversations creates, continues, changes and deletes a conversation over two replicas.
func TestConversations(t *testing.T) {
	s, c := newSDK(t), newConversations()
	created, err := c.New(t.Context(), conversations.ConversationNewParams{
		Items: []responses.ResponseInputItemUnionParam{user("one")}, Metadata: shared.Metadata{"topic": "demo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := created.ID
	retrieved, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	equalJSON(t, created.RawJSON(), retrieved.RawJSON())

	second, err := s.New(t.Context(), within(id, "two"))
	if err != nil {
		t.Fatal(err)
	}
	s.wantText(second, "You said 2 things, from 'one' to 'two'.")
	if second.Conversation.ID != id || second.PreviousResponseID != "" {
		t.Errorf("got the conversation %q and the previous response %q, want only the conversation", second.Conversation.ID, second.PreviousResponseID)
	}
	_, third, err := stream(t.Context(), &s.ResponseService, within(id, "three"))
	if err != nil {
		t.Fatal(err)
	}
	s.wantText(third, "You said 3 things, from 'one' to 'three'.")
	added, err := c.Items.New(t.Context(), id, conversations.ItemNewParams{Items: []responses.ResponseInputItemUnionParam{user("four"), user("five")}})
	if err != nil {
		t.Fatal(err)
	}
	if len(added.Data) != 2 || added.FirstID != added.Data[0].ID || added.HasMore {
		t.Errorf("got %s, want two items", added.RawJSON())
	}

	want := []string{"one", "two", second.OutputText(), "three", third.OutputText(), "four", "five"}
	ids := wantItems(t, &c, id, want)
	item, err := c.Items.Get(t.Context(), id, ids[5], conversations.ItemGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	equalJSON(t, added.Data[0].RawJSON(), item.RawJSON())
	if conversation, err := c.Items.Delete(t.Context(), id, ids[5]); err != nil || conversation.ID != id {
		t.Fatalf("got %v, %v, want the conversation", conversation, err)
	}
	wantItems(t, &c, id, slices.Delete(want, 5, 6))

	updated, err := c.Update(t.Context(), id, conversations.ConversationUpdateParams{Metadata: shared.Metadata{"topic": "other"}})
	if err != nil || gjson.Get(updated.RawJSON(), "metadata").Raw != `{"topic":"other"}` {
		t.Errorf("got %v, %v, want other metadata", updated, err)
	}
	if deleted, err := c.Delete(t.Context(), id); err != nil || !deleted.Deleted || deleted.Object != "conversation.deleted" {
		t.Errorf("got %v, %v", deleted, err)
	}
	for range replicas {
		s.wantError(http.StatusNotFound, "", func(ctx context.Context) error {
			_, err := c.Get(ctx, id)
			return err
		})
	}
	if _, err := s.Get(t.Context(), second.ID, responses.ResponseGetParams{}); err != nil {
		t.Errorf("unable to get a turn of the deleted conversation: %v", err)
	}
}

// textsOf returns the texts of the items of a conversation, a few per page, and their IDs.
func textsOf(t *testing.T, c *conversations.ConversationService, id string) (texts, ids []string) {
	t.Helper()
	pager := c.Items.ListAutoPaging(t.Context(), id, conversations.ItemListParams{Limit: param.NewOpt(int64(3)), Order: "asc"})
	for pager.Next() {
		item := pager.Current()
		ids = append(ids, item.ID)
		texts = append(texts, gjson.Get(item.RawJSON(), "content.0.text").Str)
	}
	if err := pager.Err(); err != nil {
		t.Fatal(err)
	}
	return texts, ids
}

func wantItems(t *testing.T, c *conversations.ConversationService, id string, want []string) (ids []string) {
	t.Helper()
	got, ids := textsOf(t, c, id)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	return ids
}

// TestConversationWriters: many clients continue a conversation at the same time. Each is refused until it gets its place, and the model gets
// all turns that precede it.
func TestConversationWriters(t *testing.T) {
	const writers = 32
	s, c := newSDK(t), newConversations()
	created, err := c.New(t.Context(), conversations.ConversationNewParams{})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			locked := true
			for locked {
				_, err := s.New(t.Context(), within(created.ID, fmt.Sprintf("writer %d", i)))
				e, ok := errors.AsType[*responses.Error](err)
				if locked = ok && e.Code == "conversation_locked"; err != nil && !locked {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	texts, _ := textsOf(t, &c, created.ID)
	if len(texts) != 2*writers {
		t.Fatalf("got %d items, want %d: %q", len(texts), 2*writers, texts)
	}
	seen := map[string]bool{}
	for i := 0; i < len(texts); i += 2 {
		if want := fmt.Sprintf("You said %d things, from '%s' to '%s'.", i/2+1, texts[0], texts[i]); texts[i+1] != want || seen[texts[i]] {
			t.Errorf("turn %d: got %q, want %q", i/2, texts[i+1], want)
		}
		seen[texts[i]] = true
	}
}
