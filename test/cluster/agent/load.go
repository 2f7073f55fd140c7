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

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

const (
	// maxRetries is more than needed while the kube-apiserver restarts. The client waits for up to 8 s between two attempts.
	maxRetries = 10
	// pause is between two turns, so that the cluster has time for all the rest, and the turns are deleted quickly in the end.
	pause = 200 * time.Millisecond
	// patience is how long resolves are repeated while nobody answers, which is as long as the client of OpenAI repeats its requests.
	patience = time.Minute
	// lockPatience is how long a turn is repeated while its conversation is locked: longer than the --conversation-reservation of a gateway
	// that was killed. The client of OpenAI does not repeat it, because the status is 400.
	lockPatience = 2 * time.Minute
	// slowModel is the model whose responses have eventPause between two events, of which there are about 16. As many as streams are read at
	// the same time, of which the next begins when streamPause has passed, so that some have just begun when a Pod is replaced.
	slowModel   = "slow"
	eventPause  = 4 * time.Second
	streams     = 5
	streamPause = 12 * time.Second
	// maxIdle is how long an idle connection is kept. During its --shutdown-delay-duration, a gateway announces with each response that the connection
	// ends. A connection that is idle for all that time is closed without an announcement, possibly while a request is being written to it.
	maxIdle = 3 * time.Second
	// maxFinished is the number of conversations that are checked at the end.
	maxFinished = 10_000
)

var started = time.Now()

// load has conversations with a gateway and compares what is stored with what was said.
type load struct {
	gateway, key, namespace string
	turns                   int

	client        responses.ResponseService
	conversations conversations.ConversationService
	config        *rest.Config
	// apiServer is a client of the kube-apiserver.
	apiServer rest.Interface

	mu       sync.Mutex
	counts   Status
	finished []conversation
	streamed [streams]conversation
}

// conversation has the response IDs and the texts of all its turns, and its own ID if it is one of the Conversations API. Without that, each turn
// names the one before it.
type conversation struct {
	id         string
	ids, texts []string
}

func (c conversation) last() string { return c.ids[len(c.ids)-1] }

// Status is the response to /status and /check.
type Status struct {
	// Started tells one process from another, which has forgotten what the first has counted.
	Started time.Time
	// Streaming is the number of slow streams at the same time.
	Streaming int
	// Streams counts the slow streams that were completed.
	Turns, Streams, Conversations, Resolves int
	// WithID is the number of those of the conversations that are conversations of the Conversations API.
	WithID int
	// Waiting is the number of turns that wait because their conversations are locked.
	Waiting int
	// Failed counts what failed in spite of repetitions, Repeated the requests that a client that does not repeat any would have lost, and
	// Aborted the slow streams that were not completed, Probed the probes that failed. Locked counts the requests that were refused because a
	// conversation was locked, as it stays for a time after a gateway was killed; these are not among the repeated ones.
	Failed, Repeated, Aborted, Probed, Locked Failures
}

func (s *Status) add(c conversation) {
	s.Conversations++
	if c.id != "" {
		s.WithID++
	}
}

// Failures are the number of failures, and the last of them.
type Failures struct {
	Count int
	Last  []string
}

func (f *Failures) add(err error) {
	const most = 20
	f.Count++
	text := time.Now().UTC().Format(time.TimeOnly) + " " + err.Error()
	if e, ok := errors.AsType[*responses.Error](err); ok {
		text += ": " + e.Code + ": " + e.Message // which the client's error leaves out
	}
	f.Last = append(f.Last, text)
	f.Last = f.Last[max(0, len(f.Last)-most):]
}

func (l *load) connect() (err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.IdleConnTimeout = maxIdle
	options := []option.RequestOption{
		option.WithHTTPClient(&http.Client{Transport: transport}), option.WithBaseURL(l.gateway + "/v1"), option.WithAPIKey(l.key),
		option.WithMaxRetries(maxRetries), option.WithMiddleware(l.attempt),
	}
	l.client, l.conversations = responses.NewResponseService(options...), conversations.NewConversationService(options...)
	if l.config, err = rest.InClusterConfig(); err != nil {
		return err
	}
	l.apiServer, err = kubeclient.New(l.config)
	return err
}

// attempt notes an attempt that the client of OpenAI repeats, and one that net/http repeats on another connection by itself, as it does
// with requests that have an Idempotency-Key.
func (l *load) attempt(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	connections, last := 0, httptrace.GotConnInfo{}
	trace := &httptrace.ClientTrace{GotConn: func(connection httptrace.GotConnInfo) {
		if connections++; connections > 1 {
			l.repeated(fmt.Errorf("the gateway has closed the connection before it responded, which had been idle for %s", last.IdleTime))
		}
		last = connection
	}}
	response, err := next(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	switch {
	case err != nil:
		l.repeated(fmt.Errorf("%w (its connection had been idle for %s)", err, last.IdleTime))
	case response.StatusCode >= http.StatusMultipleChoices && !refusedLocked(response): // say counts the others
		l.repeated(fmt.Errorf("the gateway responded %s", response.Status))
	}
	return response, err
}

// codeLocked is the code of the error for a turn in a conversation to which another one is being added.
const codeLocked = "conversation_locked"

// refusedLocked reports whether a response has that error. Its body can still be read.
func refusedLocked(response *http.Response) bool {
	if response.StatusCode != http.StatusBadRequest {
		return false
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && gjson.GetBytes(body, "error.code").Str == codeLocked
}

// isLocked reports whether that is the error of a client of OpenAI.
func isLocked(err error) bool {
	e, ok := errors.AsType[*responses.Error](err)
	return ok && e.Code == codeLocked
}

// converse has one conversation after another. Those of every second worker are conversations of the Conversations API.
func (l *load) converse(ctx context.Context, worker int) {
	host, _ := os.Hostname()
	for n := 0; ctx.Err() == nil; n++ {
		c, err := l.conversation(ctx, fmt.Sprintf("%s, worker %d, conversation %d", host, worker, n), worker%2 == 1)
		if err == nil {
			err = l.check(ctx, c)
		}
		if ctx.Err() != nil {
			return
		}
		l.note(func(s *Status) {
			s.add(c)
			if len(l.finished) < maxFinished {
				l.finished = append(l.finished, c)
			}
		}, err)
	}
}

// conversation has a conversation, which is created with the Conversations API if it is to have an ID. The engine's responses say whether it has
// seen all turns.
func (l *load) conversation(ctx context.Context, name string, withID bool) (c conversation, err error) {
	if withID {
		created, err := l.conversations.New(ctx, conversations.ConversationNewParams{}, option.WithHeader("Idempotency-Key", name))
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		c.id = created.ID
	}
	for turn := range l.turns {
		text := fmt.Sprintf("%s, turn %d", name, turn)
		params := responses.ResponseNewParams{Model: "scripted", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)}}
		switch {
		case c.id != "":
			params.Conversation = responses.ResponseNewParamsConversationUnion{OfString: param.NewOpt(c.id)}
		case turn > 0:
			params.PreviousResponseID = param.NewOpt(c.last())
		}
		response, err := l.say(ctx, params, text)
		if err != nil {
			return c, fmt.Errorf("%s: %w", text, err)
		}
		want := fmt.Sprintf("You said %d things, from '%s, turn 0' to '%s'.", turn+1, name, text)
		if got := response.OutputText(); got != want {
			return c, fmt.Errorf("%s: the engine said %q, want %q", text, got, want)
		}
		c.ids, c.texts = append(c.ids, response.ID), append(c.texts, text)
		l.note(func(s *Status) { s.Turns++ }, nil)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return c, nil
}

// say creates a turn with an Idempotency-Key. It repeats the request while the conversation is locked.
func (l *load) say(ctx context.Context, params responses.ResponseNewParams, key string) (*responses.Response, error) {
	header := option.WithHeader("Idempotency-Key", key)
	response, err := l.client.New(ctx, params, header)
	if !isLocked(err) {
		return response, err
	}
	l.count(func(s *Status) { s.Waiting++ })
	defer l.count(func(s *Status) { s.Waiting-- })
	for since := time.Now(); isLocked(err) && time.Since(since) < lockPatience; {
		refused := fmt.Errorf("%s: %w", key, err)
		l.count(func(s *Status) { s.Locked.add(refused) })
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		response, err = l.client.New(ctx, params, header)
	}
	return response, err
}

// stream has a conversation whose turns are slow streams. They must be completed even if the Pod of the gateway is replaced meanwhile.
func (l *load) stream(ctx context.Context, worker int) {
	time.Sleep(time.Duration(worker) * streamPause)
	var c conversation
	for turn := 0; ctx.Err() == nil; turn++ {
		start, text := time.Now(), fmt.Sprintf("stream %d, turn %d", worker, turn)
		id, err := l.streamTurn(ctx, c, text)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			err = fmt.Errorf("the stream ended after %s: %w", time.Since(start).Round(time.Second), err)
			l.count(func(s *Status) { s.Aborted.add(err) })
			time.Sleep(pause)
		default:
			c.ids, c.texts = append(c.ids, id), append(c.texts, text)
			l.mu.Lock()
			l.streamed[worker] = conversation{ids: slices.Clone(c.ids), texts: slices.Clone(c.texts)}
			l.mu.Unlock()
			l.note(func(s *Status) { s.Streams++ }, l.check(ctx, c))
		}
	}
}

// streamTurn continues a conversation, and returns the ID of the completed response.
func (l *load) streamTurn(ctx context.Context, c conversation, text string) (id string, err error) {
	params := responses.ResponseNewParams{Model: slowModel, Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)}}
	if len(c.ids) > 0 {
		params.PreviousResponseID = param.NewOpt(c.last())
	}
	events := l.client.NewStreaming(ctx, params, option.WithMaxRetries(0))
	for events.Next() {
		if event := events.Current(); event.Type == "response.completed" {
			id = event.Response.ID
		}
	}
	if err := events.Err(); err != nil {
		return "", err
	}
	if id == "" {
		return "", errors.New("it was not completed")
	}
	return id, nil
}

// check resolves a conversation through the kube-apiserver and directly. It repeats a resolve while no server responds.
func (l *load) check(ctx context.Context, c conversation) error {
	for name, options := range map[string]func(context.Context) (kube.Options, error){"through the kube-apiserver": l.through, "directly": l.direct} {
		var lastErr error
		err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
			o, err := options(ctx)
			if err == nil {
				err = resolve(ctx, c, o)
			}
			if lastErr = err; err != nil {
				l.repeated(fmt.Errorf("%s, %s: %w", c.last(), name, err))
			}
			// A kube-apiserver that has just started grants nothing to anyone yet.
			return err == nil || !store.IsRetryable(err) && !apierrors.IsForbidden(err), nil
		})
		if err = errors.Join(err, lastErr); err != nil {
			return fmt.Errorf("%s, %s: %w", c.last(), name, err)
		}
		l.note(func(s *Status) { s.Resolves++ }, nil)
	}
	return nil
}

func (l *load) through(context.Context) (kube.Options, error) {
	return kube.Options{Config: l.config, Namespace: l.namespace, ResolveHost: l.config.Host, ResolveTLS: l.config.TLSClientConfig}, nil
}

// direct returns options that do not fall back to the kube-apiserver, as those without a ResolveHost do.
func (l *load) direct(ctx context.Context) (kube.Options, error) {
	raw, err := l.apiServer.Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.resolve.catena.dev").Do(ctx).Raw()
	if err != nil {
		return kube.Options{}, &store.Error{Code: store.CodeUnreachable, Message: err.Error(), Retryable: true}
	}
	ca, err := base64.StdEncoding.DecodeString(gjson.GetBytes(raw, "spec.caBundle").String())
	if err != nil {
		return kube.Options{}, err
	}
	return kube.Options{
		Config: l.config, Namespace: l.namespace,
		ResolveHost: "https://catena-resolve.catena-system.svc", ResolveTLS: rest.TLSClientConfig{CAData: ca},
	}, nil
}

func resolve(ctx context.Context, c conversation, options kube.Options) error {
	s, err := kube.Open(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var history *store.History
	if c.id != "" {
		history, err = s.Conversations().Load(ctx, c.id, store.ResolveOptions{})
	} else {
		history, err = s.Resolve(ctx, c.last(), store.ResolveOptions{})
	}
	if err != nil {
		return err
	}
	var texts []string
	for _, item := range history.Items {
		if gjson.GetBytes(item, "role").Str == "user" {
			texts = append(texts, gjson.GetBytes(item, "content.0.text").Str)
		}
	}
	if !slices.Equal(history.Turns, c.ids) || !slices.Equal(texts, c.texts) || len(history.Items) != 2*len(c.ids) {
		return fmt.Errorf("got the turns %q, the texts %q and %d items, want %q and %q", history.Turns, texts, len(history.Items), c.ids, c.texts)
	}
	return nil
}

// checkAll checks all finished conversations again.
func (l *load) checkAll(ctx context.Context) Status {
	l.mu.Lock()
	finished := append(slices.Clone(l.finished), l.streamed[:]...)
	l.mu.Unlock()
	finished = slices.DeleteFunc(finished, func(c conversation) bool { return len(c.ids) == 0 })
	checked := &load{turns: l.turns, namespace: l.namespace, config: l.config, apiServer: l.apiServer}
	for _, c := range finished {
		checked.note(func(s *Status) {
			s.add(c)
			s.Turns += len(c.ids)
		}, checked.check(ctx, c))
	}
	return checked.status()
}

func (l *load) note(count func(*Status), err error) {
	if err != nil {
		count = func(s *Status) { s.Failed.add(err) }
	}
	l.count(count)
}

func (l *load) repeated(err error) { l.count(func(s *Status) { s.Repeated.add(err) }) }

func (l *load) count(count func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count(&l.counts)
}

func (l *load) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.counts
	s.Started, s.Streaming = started, streams
	for _, f := range []*Failures{&s.Failed, &s.Repeated, &s.Aborted, &s.Probed, &s.Locked} {
		f.Last = slices.Clone(f.Last)
	}
	return s
}
