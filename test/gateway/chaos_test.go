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
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// The extent of TestConversationChaos.
const (
	chaosConversations = 6
	chaosWriters       = 3 // in each conversation
	chaosTurns         = 20
	replicaStrikes     = 10
	operatorStrikes    = 3
)

// TestConversationChaos kills the replicas and the operator again and again while clients append turns to conversations. A client that gets no
// answer repeats its request with the same Idempotency-Key. In the end, every turn is part of its conversation once, the model has seen exactly
// the turns before it, and every client has got what is stored.
func TestConversationChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newConversations()
	var gateways []responses.ResponseService
	for _, replica := range replicas {
		gateways = append(gateways, responses.NewResponseService(option.WithBaseURL(replica.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0)))
	}
	var done atomic.Int64
	var writers []*writer
	group, ctx := errgroup.WithContext(t.Context())
	for range chaosConversations {
		created, err := c.New(t.Context(), conversations.ConversationNewParams{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range chaosWriters {
			w := &writer{gateways: gateways, conversation: created.ID, name: fmt.Sprint("writer ", i)}
			writers = append(writers, w)
			group.Go(func() error { return w.write(ctx, &done) })
		}
	}
	for i, target := range random.Perm(replicaStrikes + operatorStrikes) {
		due := int64((i + 1) * len(writers) * chaosTurns / (replicaStrikes + operatorStrikes + 1))
		testutil.Eventually(t, func(context.Context) error {
			if turns := done.Load(); turns < due && ctx.Err() == nil {
				return fmt.Errorf("%d of %d turns", turns, due)
			}
			return nil
		})
		if target < operatorStrikes {
			restartOperator(t, operator.Kill)
		} else {
			killReplica(t, target%len(replicas))
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for writers := range slices.Chunk(writers, chaosWriters) {
		checkConversation(t, &c, writers)
	}
}

// TestTakeOver: if a replica is killed while a client's response is being created in a conversation, another client continues the conversation
// through the other replica, once that has waited, and without the turn that was not saved.
func TestTakeOver(t *testing.T) {
	c := newConversations()
	created, err := c.New(t.Context(), conversations.ConversationNewParams{})
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // until then, the server does not notice that the gateway has died
		close(reached)
		<-r.Context().Done()
	}))
	defer engine.Close()
	killed, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Upstream: engine.URL, Args: []string{"--conversation-reservation=2s"}})
	if err != nil {
		t.Fatal(err)
	}
	client := func(url string) responses.ResponseService {
		return responses.NewResponseService(option.WithBaseURL(url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	}
	lost := make(chan error)
	go func() {
		s := client(killed.URL)
		_, err := s.New(t.Context(), within(created.ID, "lost"))
		lost <- err
	}()
	<-reached
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; err == nil {
		t.Error("the client of the killed replica has got a response")
	}
	locked, next := 0, client(replicas[0].URL)
	testutil.Eventually(t, func(ctx context.Context) error {
		_, err := next.New(ctx, within(created.ID, "next"))
		if e, ok := errors.AsType[*responses.Error](err); ok && e.Code == "conversation_locked" {
			locked++
			return err
		} else if err != nil {
			t.Fatal(err)
		}
		return nil
	})
	if locked == 0 {
		t.Error("the conversation was not locked")
	}
	texts, _ := textsOf(t, &c, created.ID)
	if diff := cmp.Diff([]string{"next", "You said 1 things, from 'next' to 'next'."}, texts); diff != "" {
		t.Errorf("the items of the conversation (-want +got):\n%s", diff)
	}
}

// writer is a client that appends turns to a conversation, through one replica after the other.
type writer struct {
	gateways           []responses.ResponseService
	conversation, name string
	// responses are the responses to its turns.
	responses []*responses.Response
}

func (w *writer) text(turn int) string { return fmt.Sprintf("%s, turn %d", w.name, turn) }

// write makes the turns of a writer, one after the other.
func (w *writer) write(ctx context.Context, done *atomic.Int64) error {
	for turn := range chaosTurns {
		response, err := w.send(ctx, turn)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", w.conversation, w.text(turn), err)
		}
		w.responses = append(w.responses, response)
		done.Add(1)
	}
	return nil
}

// send makes a turn. Every third one is streamed. The request is repeated until it is answered.
func (w *writer) send(ctx context.Context, turn int) (*responses.Response, error) {
	p := within(w.conversation, w.text(turn))
	key := option.WithHeader("Idempotency-Key", fmt.Sprintf("%s/%s", w.conversation, w.text(turn)))
	limiter := rate.NewLimiter(20, 1)
	for attempt := 0; ; attempt++ {
		gateway := &w.gateways[(turn+attempt)%len(w.gateways)]
		var response *responses.Response
		var err error
		if turn%3 == 2 {
			_, response, err = stream(ctx, gateway, p, key)
		} else {
			response, err = gateway.New(ctx, p, key)
		}
		if err == nil {
			return response, nil
		}
		refused, ok := errors.AsType[*responses.Error](err)
		if ok && refused.StatusCode < http.StatusInternalServerError && refused.Code != "conversation_locked" {
			return nil, err
		}
		if waitErr := limiter.Wait(ctx); waitErr != nil {
			return nil, errors.Join(waitErr, err)
		}
	}
}

// killReplica kills a replica and starts it again.
func killReplica(t *testing.T, i int) {
	t.Helper()
	if err := replicas[i].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := startReplica(t.Context(), i, replicas[i].Port); err != nil {
		t.Fatal(err)
	}
}

// checkConversation compares a conversation with what its writers have sent and got, and the operator's status with both.
func checkConversation(t *testing.T, c *conversations.ConversationService, writers []*writer) {
	t.Helper()
	id := writers[0].conversation
	texts, _ := textsOf(t, c, id)
	stored := map[string]string{} // the answers by the inputs
	for turn := range slices.Chunk(texts, 2) {
		want := fmt.Sprintf("You said %d things, from '%s' to '%s'.", len(stored)+1, texts[0], turn[0])
		if got := turn[len(turn)-1]; got != want {
			t.Errorf("%s: the model answered %q, want %q", id, got, want)
		}
		stored[turn[0]] = turn[len(turn)-1]
	}
	got, appended := map[string]string{}, map[string]bool{}
	for _, w := range writers {
		last := -1
		for turn, response := range w.responses {
			got[w.text(turn)] = response.OutputText()
			appended[response.ID] = true
			at := slices.Index(texts, w.text(turn))
			if at <= last {
				t.Errorf("%s: %s is not stored after the turn before it", id, w.text(turn))
			}
			last = at
		}
	}
	if diff := cmp.Diff(got, stored); diff != "" || len(texts) != 2*len(stored) {
		t.Errorf("%s: answers in %d items (-seen +stored):\n%s", id, len(texts), diff)
	}
	wantStored(t, id, appended)
	awaitStatus(t, id, len(stored), len(texts))
}

// wantStored checks which turns of a conversation are stored, whether they are part of it or not.
func wantStored(t *testing.T, id string, appended map[string]bool) {
	t.Helper()
	sessions := &v1alpha1.ResponseSessionList{}
	if err := env.Client.List(t.Context(), sessions, client.InNamespace("default"), client.MatchingFields{"spec.conversationID": id}); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, session := range sessions.Items {
		all[session.Spec.ResponseID] = true
	}
	if diff := cmp.Diff(appended, all); diff != "" {
		t.Errorf("%s: turns, with those that are not part of the conversation (-seen +stored):\n%s", id, diff)
	}
}

// awaitStatus waits until the operator's status of a conversation has a number of turns and items.
func awaitStatus(t *testing.T, id string, turns, items int) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		conversation := &v1alpha1.Conversation{}
		if err := env.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: v1alpha1.ObjectName(id)}, conversation); err != nil {
			return err
		}
		status := conversation.Status
		if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionHeadResolved) || int(status.Turns) != turns || int(status.Items) != items {
			return fmt.Errorf("%s: the operator's status is %+v, want %d turns and %d items", id, status, turns, items)
		}
		return nil
	})
}
