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
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

const (
	clients        = 64
	turnsPerClient = 30
	// maxRetries is far more than needed while the operator restarts.
	maxRetries = 120
)

// TestConcurrency runs many clients at once, each alternating between the replicas, while the operator is stopped and
// killed. The stored conversations must then equal what the clients saw.
//
// Without an operator, histories cannot be resolved: a client gets 503 with Retry-After, and OpenAI's clients wait and
// retry. It gets no other error.
func TestConcurrency(t *testing.T) {
	var done atomic.Int64
	retries := &retryCounter{}
	conversations := make([]*conversation, clients)
	group, ctx := errgroup.WithContext(t.Context())
	for i := range conversations {
		c := &conversation{name: fmt.Sprintf("client %d", i)}
		for _, replica := range replicas {
			c.gateways = append(c.gateways, responses.NewResponseService(option.WithBaseURL(replica.URL+"/v1"), option.WithAPIKey("none"),
				option.WithMaxRetries(maxRetries), option.WithMiddleware(retries.count)))
		}
		conversations[i] = c
		group.Go(func() error {
			for range turnsPerClient {
				if err := c.sendTurn(ctx); err != nil {
					return fmt.Errorf("%s, turn %d: %w", c.name, len(c.ids), err)
				}
				done.Add(1)
			}
			return nil
		})
	}
	waitForTurns := func(n int64) {
		testutil.Eventually(t, func(context.Context) error {
			if turns := done.Load(); turns < n && ctx.Err() == nil {
				return fmt.Errorf("%d of %d turns", turns, n)
			}
			return nil
		})
	}
	for i, terminate := range []func() error{operator.Stop, func() error { return operator.Kill() }} {
		waitForTurns(int64(clients * turnsPerClient * (i + 1) / 3))
		restartOperator(t, terminate)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(retries.unexpected) > 0 {
		log, _ := exec.CommandContext(t.Context(), "grep", "request failed", replicas[0].LogFile).Output()
		t.Errorf("unexpected errors %q\n%s", retries.unexpected, log)
	}
	t.Logf("%d turns, %d 503 responses with Retry-After, at most %d for one request", done.Load(), retries.total, retries.most)

	if err := env.WaitForResolveAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conversations {
		c.check(t, s)
	}
	waitForVerdicts(t, conversations)
}

// restartOperator terminates the operator and starts it again.
func restartOperator(t *testing.T, terminate func() error) {
	t.Helper()
	if err := terminate(); err != nil {
		t.Error(err)
	}
	var err error
	if operator, err = env.StartOperator(t.Context(), operatorOptions(operator.Port)); err != nil {
		t.Fatal(err)
	}
}

// conversation is a conversation as seen by its client.
type conversation struct {
	name     string
	gateways []responses.ResponseService
	ids      []string
	// items are the items of all turns, as JSON values.
	items []any
}

// sendTurn makes the next turn. Every third one is streamed.
func (c *conversation) sendTurn(ctx context.Context) error {
	n := len(c.ids)
	text, previous := fmt.Sprintf("%s, turn %d", c.name, n), ""
	if n > 0 {
		previous = c.ids[n-1]
	}
	gateway := &c.gateways[n%len(c.gateways)]
	var response *responses.Response
	var err error
	if n%3 == 2 {
		_, response, err = stream(ctx, gateway, params(previous, user(text)))
	} else {
		response, err = gateway.New(ctx, params(previous, user(text)))
	}
	if err != nil {
		return err
	}
	want := fmt.Sprintf("You said %d things, from '%s, turn 0' to '%s'.", n+1, c.name, text)
	if got := response.OutputText(); got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	c.ids = append(c.ids, response.ID)
	c.items = append(c.items, map[string]any{"role": "user", "content": text})
	for _, item := range response.Output {
		c.items = append(c.items, decode(item.RawJSON()))
	}
	return nil
}

// check compares the stored conversation item by item with the one that the client saw.
func (c *conversation) check(t *testing.T, s *store.Store) {
	t.Helper()
	history, err := s.Resolve(t.Context(), c.ids[len(c.ids)-1], store.ResolveOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	var items []any
	for _, item := range history.Items {
		items = append(items, decode(string(item)))
	}
	if diff := cmp.Diff(c.ids, history.Turns); diff != "" {
		t.Errorf("%s: turns (-seen +stored):\n%s", c.name, diff)
	}
	// Stored items have the engine's IDs, and not what the gateway adds.
	unstored := cmpopts.IgnoreMapEntries(func(name string, _ any) bool { return name == "id" || name == "logprobs" })
	if diff := cmp.Diff(c.items, items, unstored); diff != "" {
		t.Errorf("%s: items (-seen +stored):\n%s", c.name, diff)
	}
}

// waitForVerdicts waits until every turn has the verdict Resolved and its depth.
func waitForVerdicts(t *testing.T, conversations []*conversation) {
	t.Helper()
	depths := map[string]int32{}
	for _, c := range conversations {
		for i, id := range c.ids {
			depths[id] = int32(i + 1)
		}
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		list := &v1alpha1.ResponseSessionList{}
		if err := env.Client.List(ctx, list); err != nil {
			return err
		}
		correct := 0
		for i := range list.Items {
			session := &list.Items[i]
			condition := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionChainValid)
			if depth, ok := depths[session.Spec.ResponseID]; ok && condition != nil && condition.Reason == v1alpha1.ReasonResolved && session.Status.Depth == depth {
				correct++
			}
		}
		if correct < len(depths) {
			return fmt.Errorf("%d of %d turns have the correct verdict", correct, len(depths))
		}
		return nil
	})
}

// retryCounter counts the responses after which clients retry, and records all other errors.
type retryCounter struct {
	mu sync.Mutex
	// total counts 503 responses with Retry-After, and most is their largest number for one request.
	total, most int
	// unexpected has the errors that no client should get.
	unexpected []string
}

// count is a middleware of OpenAI's client.
func (r *retryCounter) count(request *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	response, err := next(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.unexpected = append(r.unexpected, err.Error())
	case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "":
		retry, _ := strconv.Atoi(request.Header.Get("X-Stainless-Retry-Count")) // set by the client
		r.total++
		r.most = max(r.most, retry+1)
	case response.StatusCode != http.StatusOK:
		r.unexpected = append(r.unexpected, response.Status)
	}
	return response, err
}

func decode(raw string) any {
	var value any
	if err := json.Unmarshal([]byte(raw), &value); err != nil {
		return err // differs from every decoded value
	}
	return value
}

func equalJSON(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(decode(want), decode(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
