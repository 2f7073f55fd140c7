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

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
)

// hookedConversations is a driver whose calls can be replaced.
type hookedConversations struct {
	driver.Conversations
	onCreate func(next func() (*driver.Conversation, error)) (*driver.Conversation, error)
	onUpdate func(ctx context.Context, next func() (*driver.Conversation, error)) (*driver.Conversation, error)
}

func (h *hookedConversations) CreateConversation(ctx context.Context, namespace string, c *driver.Conversation) (*driver.Conversation, error) {
	return h.onCreate(func() (*driver.Conversation, error) { return h.Conversations.CreateConversation(ctx, namespace, c) })
}

func (h *hookedConversations) UpdateConversation(
	ctx context.Context, namespace, id string, update driver.ConversationUpdate,
) (*driver.Conversation, error) {
	return h.onUpdate(ctx, func() (*driver.Conversation, error) {
		return h.Conversations.UpdateConversation(context.WithoutCancel(ctx), namespace, id, update)
	})
}

// TestConversationQuota: a tenant that has exceeded its quota cannot create conversations, and is told so.
func TestConversationQuota(t *testing.T) {
	f := start(t, nil)
	f.store.Conversations = &hookedConversations{Conversations: f.store.Conversations, onCreate: func(func() (*driver.Conversation, error)) (*driver.Conversation, error) {
		return nil, errQuotaExceeded
	}}
	for _, body := range []string{`{}`, `{"items":[{"role":"user","content":"x"}]}`} {
		if r := f.do(http.MethodPost, "/v1/conversations", body); r.code() != "Too Many Requests session.store.quota_exceeded" {
			t.Errorf("%s: got %d %s", body, r.status, r.body)
		}
	}
}

// TestHideItemQuota: while the quota is exceeded, an item cannot be removed from a conversation, which makes that larger, and the client is told so.
func TestHideItemQuota(t *testing.T) {
	f := start(t, nil)
	path := "/v1/conversations/" + f.do(http.MethodPost, "/v1/conversations", `{"items":[{"role":"user","content":"x"}]}`).get("id") + "/items"
	item := path + "/" + f.do(http.MethodGet, path, "").get("data.0.id")
	f.store.Conversations = &hookedConversations{
		Conversations: f.store.Conversations,
		onUpdate: func(context.Context, func() (*driver.Conversation, error)) (*driver.Conversation, error) {
			return nil, errQuotaExceeded
		},
	}
	r := f.do(http.MethodDelete, item, "")
	if r.code() != "Too Many Requests session.store.quota_exceeded" || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if r := f.do(http.MethodGet, item, ""); r.status != http.StatusOK {
		t.Errorf("got %d %s, want the item", r.status, r.body)
	}
}

// TestCreateLost: if the answer of the creation of a conversation is lost, and nobody can repeat the request, nothing is left of it.
func TestCreateLost(t *testing.T) {
	f := start(t, nil)
	var created *driver.Conversation
	f.store.Conversations = &hookedConversations{Conversations: f.store.Conversations, onCreate: func(next func() (*driver.Conversation, error)) (*driver.Conversation, error) {
		var err error
		if created, err = next(); err != nil {
			t.Error(err)
		}
		return nil, &store.Error{Code: store.CodeUnreachable, Retryable: true}
	}}
	r := f.do(http.MethodPost, "/v1/conversations", `{"items":[{"role":"user","content":"x"}]}`)
	if r.code() != "Service Unavailable session.store.unreachable" || f.saved(created.Head.ResponseID) != nil {
		t.Errorf("got %d %s, and the turn is stored", r.status, r.body)
	}
	if r := f.do(http.MethodGet, "/v1/conversations/"+created.ConversationID, ""); r.status != http.StatusNotFound {
		t.Errorf("the conversation: got %d %s, want 404", r.status, r.body)
	}
}

// TestReservingClientGone: if a client goes away while the place of its turn is being reserved, others need not wait, even if it remains unknown
// whether the place was reserved.
func TestReservingClientGone(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/responses":                  `{"input":"x","conversation":"conv_1"}`,
		"/v1/conversations/conv_1/items": `{"items":[{"role":"user","content":"x"}]}`,
	} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s lost=%t", path, lost), func(t *testing.T) {
				f, _ := startConversation(t, nil)
				ctx, leave := context.WithCancel(t.Context())
				var once sync.Once
				f.store.Conversations = &hookedConversations{Conversations: f.store.Conversations, onUpdate: func(
					ctx context.Context, next func() (*driver.Conversation, error),
				) (*driver.Conversation, error) {
					c, err := next()
					first := false
					once.Do(func() { first = true })
					if !first {
						return c, err
					}
					leave()
					<-ctx.Done()
					if lost {
						return nil, ctx.Err()
					}
					return c, err
				}}
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if response, err := f.client.Do(request); err == nil {
					_ = response.Body.Close()
					t.Fatalf("the client has got %d", response.StatusCode)
				}
				f.eventually("the place is reserved", func() bool {
					c, err := f.conversations().Get(t.Context(), conv)
					return err == nil && c.Head == store.Head{}
				})
			})
		}
	}
}
