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
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// gatewayClient is a client of one gateway. It repeats nothing.
type gatewayClient struct {
	conversations.ConversationService
	responses responses.ResponseService
}

func newGatewayClient(url, key string) *gatewayClient {
	options := []option.RequestOption{
		option.WithBaseURL(url + "/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0), option.WithHeader("Idempotency-Key", key),
	}
	return &gatewayClient{conversations.NewConversationService(options...), responses.NewResponseService(options...)}
}

// killable is a request with which a gateway is killed.
type killable struct {
	// send sends the request, and returns the ID of the conversation. It gets that of a conversation with the items "one" and "two" in one
	// turn, and the ID of the first item.
	send func(ctx context.Context, c *gatewayClient, id, item string) (string, error)
	// texts are those of the items of the conversation in the end. It must not exist if they are nil.
	texts []string
	// turns is the number of turns that are stored in the end, with the first one.
	turns int
	// writes is the number of writes.
	writes int
}

var oneAndTwo = conversations.ConversationNewParams{Items: []responses.ResponseInputItemUnionParam{user("one"), user("two")}}

// killables are the requests that change conversations. One in a conversation takes one write more than one without: that of the head.
var killables = map[string]killable{
	"create a response without a conversation": {
		send: func(ctx context.Context, c *gatewayClient, id, _ string) (string, error) {
			_, err := c.responses.New(ctx, params("", user("three")))
			return id, err
		},
		texts: []string{"one", "two"}, turns: 2, writes: 1,
	},
	"create a conversation": {
		send: func(ctx context.Context, c *gatewayClient, _, _ string) (string, error) {
			created, err := c.New(ctx, oneAndTwo)
			if err != nil {
				return "", err
			}
			return created.ID, nil
		},
		texts: []string{"one", "two"}, turns: 1, writes: 2,
	},
	"create items": {
		send: func(ctx context.Context, c *gatewayClient, id, _ string) (string, error) {
			_, err := c.Items.New(ctx, id, conversations.ItemNewParams{Items: []responses.ResponseInputItemUnionParam{user("three"), user("four")}})
			return id, err
		},
		texts: []string{"one", "two", "three", "four"}, turns: 2, writes: 2,
	},
	"create a response": {
		send: func(ctx context.Context, c *gatewayClient, id, _ string) (string, error) {
			_, err := c.responses.New(ctx, within(id, "three"))
			return id, err
		},
		texts: []string{"one", "two", "three", "You said 3 things, from 'one' to 'three'."}, turns: 2, writes: 2,
	},
	"delete an item": {
		send: func(ctx context.Context, c *gatewayClient, id, item string) (string, error) {
			_, err := c.Items.Delete(ctx, id, item)
			return id, unlessNotFound(err)
		},
		texts: []string{"two"}, turns: 1, writes: 1,
	},
	"update metadata": {
		send: func(ctx context.Context, c *gatewayClient, id, _ string) (string, error) {
			updated, err := c.Update(ctx, id, conversations.ConversationUpdateParams{Metadata: shared.Metadata{"k": "v"}})
			if err == nil && gjson.Get(updated.RawJSON(), "metadata").Raw != `{"k":"v"}` {
				err = fmt.Errorf("got %s", updated.RawJSON())
			}
			return id, err
		},
		texts: []string{"one", "two"}, turns: 1, writes: 1,
	},
	"delete a conversation": {
		send: func(ctx context.Context, c *gatewayClient, id, _ string) (string, error) {
			_, err := c.Delete(ctx, id)
			return id, unlessNotFound(err)
		},
		turns: 1, writes: 1,
	},
}

// unlessNotFound returns nil for the error that a repeated deletion gets if the first one has succeeded.
func unlessNotFound(err error) error {
	if e, ok := errors.AsType[*responses.Error](err); ok && e.StatusCode == http.StatusNotFound {
		return nil
	}
	return err
}

// TestKilledAtEachWrite kills a gateway before and after each write that it makes for a request. The client repeats the request through another
// replica, with the same Idempotency-Key. In the end, everything is as if the first one had succeeded, and nothing else is stored.
func TestKilledAtEachWrite(t *testing.T) {
	for name, request := range killables {
		t.Run(name, func(t *testing.T) {
			write := 1
			for request.kill(t, write, false) && request.kill(t, write, true) {
				write++
			}
			if write-1 != request.writes {
				t.Errorf("the request took %d writes, want %d", write-1, request.writes)
			}
		})
	}
}

// kill kills a gateway before it writes for the nth time, or after that write was applied. It returns false if the request takes fewer writes.
func (k killable) kill(t *testing.T, nth int, applied bool) bool {
	t.Helper()
	key := fmt.Sprintf("%s, write %d, applied: %t, %d", t.Name(), nth, applied, time.Now().UnixNano())
	survivor := newGatewayClient(replicas[0].URL, key)
	prepared, err := newGatewayClient(replicas[0].URL, "prepare "+key).New(t.Context(), oneAndTwo)
	if err != nil {
		t.Fatal(err)
	}
	_, items := textsOf(t, &survivor.ConversationService, prepared.ID)
	before := stored(t)

	at := &breakpoint{nth: nth, applied: applied, reached: make(chan struct{})}
	kubeconfig := env.Proxy(t, "default", "catena-gateway", at.handle)
	gateway, err := env.StartGateway(t.Context(), testenv.GatewayOptions{
		Upstream: engineURL, Race: true, Args: []string{"--store=" + testenv.StoreURL("default", kubeconfig), "--conversation-reservation=10s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	killed := make(chan error, 1)
	go func() {
		_, err := k.send(t.Context(), newGatewayClient(gateway.URL, key), prepared.ID, items[0])
		killed <- err
	}()
	select {
	case <-at.reached:
	case err := <-killed:
		if err := errors.Join(err, gateway.Stop()); err != nil {
			t.Errorf("%s: the request takes fewer writes, and has failed: %v", key, err)
		}
		return false
	}
	if err := gateway.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-killed; err == nil {
		t.Errorf("%s: the killed gateway has responded", key)
	}
	var id string
	testutil.Eventually(t, func(ctx context.Context) (err error) {
		id, err = k.send(ctx, survivor, prepared.ID, items[0])
		if e, ok := errors.AsType[*responses.Error](err); ok && e.Code != "conversation_locked" {
			t.Fatalf("%s: the repeated request: %v", key, err)
		}
		return err
	})
	k.check(t, survivor, prepared.ID, id, before)
	return true
}

// check checks what is stored in the end. before is what was stored before the request.
func (k killable) check(t *testing.T, c *gatewayClient, prepared, id string, before counts) {
	t.Helper()
	want := before
	if id == prepared {
		want.turns += k.turns - 1
	} else {
		want.turns += k.turns
		want.conversations++
	}
	if k.texts == nil {
		want.conversations--
		if _, err := c.Get(t.Context(), id); err == nil {
			t.Errorf("%s is not deleted", id)
		}
	} else {
		wantItems(t, &c.ConversationService, id, k.texts)
	}
	if got := stored(t); got != want {
		t.Errorf("%+v are stored, want %+v", got, want)
	}
}

// counts are numbers of objects.
type counts struct{ conversations, turns int }

func stored(t *testing.T) counts {
	t.Helper()
	conversations, sessions := &v1alpha1.ConversationList{}, &v1alpha1.ResponseSessionList{}
	for _, list := range []client.ObjectList{conversations, sessions} {
		if err := env.Client.List(t.Context(), list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
	}
	return counts{len(conversations.Items), len(sessions.Items)}
}

// breakpoint is where a gateway is stopped by the proxy between it and the kube-apiserver.
type breakpoint struct {
	nth     int
	applied bool
	// reached is closed when the nth write is about to be made or, if applied is set, was made.
	reached chan struct{}

	mu     sync.Mutex
	writes int
}

func (b *breakpoint) handle(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/apis/"+v1alpha1.GroupVersion.String()+"/") {
		forward.ServeHTTP(w, r)
		return
	}
	b.mu.Lock()
	b.writes++
	writes := b.writes
	b.mu.Unlock()
	if writes < b.nth {
		forward.ServeHTTP(w, r)
		return
	}
	switch {
	case b.applied && writes == b.nth:
		forward.ServeHTTP(httptest.NewRecorder(), r)
	default:
		_, _ = io.Copy(io.Discard, r.Body) // until then, the server does not notice that the gateway has died
	}
	if writes == b.nth {
		close(b.reached)
	}
	<-r.Context().Done()
}
