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

package e2e_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
)

const (
	// conversationTurns is the number of turns of a conversation.
	conversationTurns = 20
	// largeEvery is how many turns there are for each one that is stored in several chunks or in a bucket.
	largeEvery = 25
)

// padding makes a turn large. It cannot be compressed below the size of one chunk.
var padding = func() string {
	data := make([]byte, 600_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	return base64.StdEncoding.EncodeToString(data)
}()

// isLarge reports whether a turn of a conversation is large. The first one never is, because every answer repeats it.
func isLarge(conversation, turn int) bool {
	return (conversation*conversationTurns+turn)%largeEvery == largeEvery/2
}

// question returns the text of a turn of a conversation.
func question(conversation, turn int) string {
	text := fmt.Sprintf("conversation %d, turn %d", conversation, turn)
	if isLarge(conversation, turn) {
		text += " " + padding
	}
	return text
}

// gatewayClients are the clients of two gateways, of which the second stores large turns in a bucket. They record the turns that the gateways
// acknowledged.
type gatewayClients struct {
	namespace string
	gateways  [2]*testenv.Gateway

	mu            sync.Mutex
	conversations []clientConversation
	retries       int
}

// clientConversation is a conversation of a client. Every second one is a Conversation; the turns of the others name the previous response.
type clientConversation struct {
	// id is the conversation ID, or empty.
	id string
	// turns are the acknowledged response IDs, oldest first.
	turns []string
}

func newGatewayClients(t *testing.T, bucket string) *gatewayClients {
	t.Helper()
	engine := httptest.NewServer(enginetest.Handler())
	t.Cleanup(engine.Close)
	c := &gatewayClients{namespace: env.NewNamespace(t)}
	kubeconfig, err := env.Editor(t.Context(), c.namespace)
	if err != nil {
		t.Fatal(err)
	}
	inBucket := testenv.StoreURL(c.namespace, kubeconfig) + "&snapshot-store=" + url.QueryEscape(bucket)
	for i, args := range [][]string{nil, {"--store=" + inBucket}} {
		args = append(args, "--conversation-reservation=5s") // how long a retry waits if a reservation could not be ended
		started, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Namespace: c.namespace, Upstream: engine.URL, Args: args})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := started.Stop(); err != nil {
				t.Error(err)
			}
		})
		c.gateways[i] = started
	}
	return c
}

// run makes a number of turns with several clients. Each repeats its requests until they are answered.
func (c *gatewayClients) run(ctx context.Context, group *errgroup.Group, turns int, written *atomic.Int64) {
	limiter := rate.NewLimiter(chaosPerSecond/2, 1)
	numbers := make(chan int, turns/conversationTurns)
	for n := range turns / conversationTurns {
		numbers <- n
	}
	close(numbers)
	for range chaosWriters {
		group.Go(func() error {
			for n := range numbers {
				conversation, err := c.begin(ctx, n)
				if err != nil {
					return err
				}
				for range conversationTurns {
					if err := limiter.Wait(ctx); err != nil {
						return err
					}
					id, err := c.turn(ctx, n, conversation)
					if err != nil {
						return err
					}
					conversation.turns = append(conversation.turns, id)
					written.Add(1)
				}
				c.mu.Lock()
				c.conversations = append(c.conversations, conversation)
				c.mu.Unlock()
			}
			return nil
		})
	}
}

// begin begins a conversation. If the answer to an attempt is lost, its Conversation remains without turns.
func (c *gatewayClients) begin(ctx context.Context, n int) (conversation clientConversation, err error) {
	if n%2 == 1 {
		conversation.id, err = c.request(ctx, n, "/v1/conversations", "", "{}")
	}
	return conversation, err
}

// turn makes the next turn of a conversation.
func (c *gatewayClients) turn(ctx context.Context, n int, of clientConversation) (id string, err error) {
	body := fmt.Sprintf(`{"model":"scripted","input":%q`, question(n, len(of.turns)))
	switch {
	case of.id != "":
		body += fmt.Sprintf(`,"conversation":%q`, of.id)
	case len(of.turns) > 0:
		body += fmt.Sprintf(`,"previous_response_id":%q`, of.turns[len(of.turns)-1])
	}
	return c.request(ctx, n, "/v1/responses", fmt.Sprintf("conversation %d, turn %d", n, len(of.turns)), body+"}")
}

// request repeats a request until it is answered, and returns the ID of what it has made. Attempts alternate between the gateways, with the same
// Idempotency-Key.
func (c *gatewayClients) request(ctx context.Context, n int, path, key, body string) (string, error) {
	limiter := rate.NewLimiter(5, 1)
	for attempt := 0; ; attempt++ {
		if err := limiter.Wait(ctx); err != nil {
			return "", err
		}
		status, answer := post(ctx, c.gateways[(n+attempt)%2].URL+path, key, body)
		locked := gjson.Get(answer, "error.code").Str == "conversation_locked" // by an earlier attempt
		switch {
		case status == http.StatusOK:
			return gjson.Get(answer, "id").Str, nil
		case !locked && (status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusUnprocessableEntity):
			return "", fmt.Errorf("%s: got %d: %s", key, status, answer)
		}
		c.mu.Lock()
		c.retries++
		c.mu.Unlock()
	}
}

// post returns the status and the body of the response. The status is 0 if there was no response.
func post(ctx context.Context, url, key, body string) (status int, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// check checks that exactly the acknowledged turns are stored, the large ones in several chunks or in the bucket, and that each conversation
// has them in its history.
func (c *gatewayClients) check(t *testing.T) {
	t.Helper()
	if err := env.WaitForResolveAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	var stored []string
	chunked, inBucket := 0, 0
	for _, session := range listSessions(t.Context(), t, c.namespace) {
		stored = append(stored, session.Spec.ResponseID)
		switch snapshot := session.Spec.Snapshot; {
		case snapshot == nil:
		case snapshot.Store != v1alpha1.SnapshotStoreChunks:
			inBucket++
		case snapshot.Parts > 1:
			chunked++
		}
	}
	var acknowledged []string
	for _, conversation := range c.conversations {
		acknowledged = append(acknowledged, conversation.turns...)
	}
	slices.Sort(stored)
	slices.Sort(acknowledged)
	if diff := cmp.Diff(acknowledged, stored); diff != "" {
		t.Errorf("turns (-acknowledged +stored):\n%s", diff)
	}
	t.Logf("%d turns through the gateways, %d of them in chunks, %d in the bucket, %d requests repeated", len(acknowledged), chunked, inBucket, c.retries)
	if want := largeTurns(len(c.conversations)); chunked+inBucket != want || chunked == 0 || inBucket == 0 {
		t.Errorf("%d turns are stored in several chunks and %d in the bucket, want %d, some in each", chunked, inBucket, want)
	}
	turns := env.Store.InNamespace(c.namespace)
	for _, conversation := range c.conversations {
		last := conversation.turns[len(conversation.turns)-1]
		history, err := turns.Resolve(t.Context(), last, store.ResolveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(conversation.turns, history.Turns); diff != "" {
			t.Error(diff)
		}
		if err := checkTexts(history); err != nil {
			t.Error(err)
		}
		if conversation.id != "" {
			testutil.Eventually(t, func(ctx context.Context) error { return c.endsAt(ctx, conversation.id, last) })
		}
	}
}

// endsAt returns an error unless a Conversation ends at a turn, and its status says that it resolves with all turns.
func (c *gatewayClients) endsAt(ctx context.Context, id, head string) error {
	object := &v1alpha1.Conversation{}
	if err := env.Client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.ObjectName(id)}, object); err != nil {
		return err
	}
	spec, status := object.Spec, object.Status
	return unless(spec.HeadResponseID == head && status.Turns == conversationTurns && status.Items == 2*conversationTurns && status.ObservedGeneration == object.Generation &&
		meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionHeadResolved), fmt.Sprintf("%s ends at %+v, want %s: %+v", id, spec, head, status))
}

// largeTurns returns the number of large turns of the first conversations.
func largeTurns(conversations int) (large int) {
	for n := range conversations {
		for i := range conversationTurns {
			if isLarge(n, i) {
				large++
			}
		}
	}
	return large
}

// checkTexts checks that each turn has the question for its position in one conversation, and an answer to it.
func checkTexts(history *store.History) error {
	first := gjson.GetBytes(history.Items[0], "content.0.text").Str
	conversation := 0
	if _, err := fmt.Sscanf(first, "conversation %d, turn 0", &conversation); err != nil || len(history.Items) != 2*conversationTurns {
		return fmt.Errorf("%s has %d items: %w", first, len(history.Items), err)
	}
	var errs []error
	for i := range conversationTurns {
		text := question(conversation, i)
		answer := fmt.Sprintf("You said %d things, from '%s' to '%s'.", i+1, first, text)
		for item, want := range map[int]string{2 * i: text, 2*i + 1: answer} {
			if got := gjson.GetBytes(history.Items[item], "content.0.text").Str; got != want && (i > 0 || item%2 == 0) {
				errs = append(errs, fmt.Errorf("got %.200q of %d bytes, want %.200q of %d bytes", got, len(got), want, len(want)))
			}
		}
	}
	return errors.Join(errs...)
}
