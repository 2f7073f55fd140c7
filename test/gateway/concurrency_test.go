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
	"github.com/openai/openai-go/v3"
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
	turnsPerClient = 50
	// maxRetries is far more than the operator needs to start again.
	maxRetries = 120
)

// TestConcurrency: many clients talk at once, each in turn to one replica and the other, while the operator is stopped
// and killed. Every conversation is then exactly what its client saw.
//
// While there is no operator, histories cannot be resolved: a client gets 503 with Retry-After, which OpenAI's clients
// wait for and try again. It gets no other error.
func TestConcurrency(t *testing.T) {
	var done atomic.Int64
	retries := &retryCounter{}
	conversations := make([]*conversation, clients)
	group, ctx := errgroup.WithContext(t.Context())
	for i := range conversations {
		c := &conversation{name: fmt.Sprintf("client %d", i)}
		for _, replica := range replicas {
			c.gateways = append(c.gateways, openai.NewClient(option.WithBaseURL(replica.URL+"/v1"), option.WithAPIKey("none"),
				option.WithMaxRetries(maxRetries), option.WithMiddleware(retries.count)))
		}
		conversations[i] = c
		group.Go(func() error {
			for range turnsPerClient {
				if err := c.say(ctx); err != nil {
					return fmt.Errorf("%s, turn %d: %w", c.name, len(c.ids), err)
				}
				done.Add(1)
			}
			return nil
		})
	}
	reached := func(n int64) {
		testutil.Eventually(t, func(context.Context) error {
			if done.Load() >= n || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%d of %d turns", done.Load(), n)
		})
	}
	for i, end := range []func() error{operator.Stop, func() error { return operator.Kill() }} {
		reached(int64(clients * turnsPerClient * (i + 1) / 3))
		if err := end(); err != nil {
			t.Error(err)
		}
		var err error
		if operator, err = env.StartOperator(t.Context(), operatorOptions(operator.Port)); err != nil {
			t.Fatal(err)
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(retries.others) > 0 {
		log, _ := exec.CommandContext(t.Context(), "grep", "request failed", replicas[0].LogFile).Output()
		t.Errorf("clients met %q\n%s", retries.others, log)
	}
	t.Logf("%d turns, %d answers of 503 with Retry-After, at most %d for one request", done.Load(), retries.answers, retries.most)

	if err := env.WaitForResolveAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	turns, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conversations {
		c.check(t, turns)
	}
	checkVerdicts(t, conversations)
}

// conversation is what one client has seen.
type conversation struct {
	name     string
	gateways []openai.Client
	ids      []string
	// items are those of all turns, as JSON values.
	items []any
}

// say makes the next turn. Every third one is streamed.
func (c *conversation) say(ctx context.Context) error {
	n := len(c.ids)
	said, previous := fmt.Sprintf("%s, turn %d", c.name, n), ""
	if n > 0 {
		previous = c.ids[n-1]
	}
	gateway := &c.gateways[n%len(c.gateways)]
	var response *responses.Response
	var err error
	if n%3 == 2 {
		_, response, err = stream(ctx, gateway, params(previous, user(said)))
	} else {
		response, err = gateway.Responses.New(ctx, params(previous, user(said)))
	}
	if err != nil {
		return err
	}
	want := fmt.Sprintf("You said %d things, from '%s, turn 0' to '%s'.", n+1, c.name, said)
	if got := response.OutputText(); got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	c.ids = append(c.ids, response.ID)
	c.items = append(c.items, map[string]any{"role": "user", "content": said})
	for _, item := range response.Output {
		c.items = append(c.items, decode(item.RawJSON()))
	}
	return nil
}

// check compares what is stored with what the client has seen, item by item.
func (c *conversation) check(t *testing.T, turns *store.Store) {
	t.Helper()
	history, err := turns.Resolve(t.Context(), c.ids[len(c.ids)-1], store.ResolveOptions{})
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
	if diff := cmp.Diff(c.items, items); diff != "" {
		t.Errorf("%s: items (-seen +stored):\n%s", c.name, diff)
	}
}

// checkVerdicts waits until the operator has judged every turn to be what it is.
func checkVerdicts(t *testing.T, conversations []*conversation) {
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
		right := 0
		for i := range list.Items {
			session := &list.Items[i]
			condition := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionChainValid)
			if depth, ok := depths[session.Spec.ResponseID]; ok && condition != nil && condition.Reason == v1alpha1.ReasonResolved && session.Status.Depth == depth {
				right++
			}
		}
		if right < len(depths) {
			return fmt.Errorf("%d of %d turns are judged right", right, len(depths))
		}
		return nil
	})
}

// retryCounter counts what clients try again.
type retryCounter struct {
	mu sync.Mutex
	// answers are those that tell the client when to try again, and most is how many of them one request got.
	answers, most int
	// others are what no client should meet.
	others []string
}

// count is a middleware of OpenAI's client.
func (r *retryCounter) count(request *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	response, err := next(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.others = append(r.others, err.Error())
	case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "":
		try, _ := strconv.Atoi(request.Header.Get("X-Stainless-Retry-Count")) // the client's own
		r.answers++
		r.most = max(r.most, try+1)
	case response.StatusCode != http.StatusOK:
		r.others = append(r.others, response.Status)
	}
	return response, err
}

func decode(raw string) any {
	var value any
	if err := json.Unmarshal([]byte(raw), &value); err != nil {
		return err // equal to nothing
	}
	return value
}

func equalJSON(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(decode(want), decode(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
