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
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
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
	// probePause is between two probes of the same server.
	probePause = 30 * time.Millisecond
	// maxFinished is the number of conversations that are checked at the end.
	maxFinished = 10_000
)

// load has conversations with a gateway and compares what is stored with what was said.
type load struct {
	gateway, key, namespace string
	turns                   int

	client responses.ResponseService
	config *rest.Config
	// apiServer is a client of the kube-apiserver.
	apiServer rest.Interface

	mu       sync.Mutex
	counts   Status
	finished []string // the last turns of conversations
}

// Status is the response to /status and /check.
type Status struct {
	Turns, Conversations, Resolves int
	// Failed counts what failed in spite of repetitions, and Repeated the requests that a client that does not repeat any would have lost.
	Failed, Repeated Failures
}

// Failures are the number of failures, and the last of them.
type Failures struct {
	Count int
	Last  []string
}

func (f *Failures) add(err error) {
	const most = 20
	f.Count++
	f.Last = append(f.Last, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
	f.Last = f.Last[max(0, len(f.Last)-most):]
}

func (l *load) connect() (err error) {
	l.client = responses.NewResponseService(option.WithBaseURL(l.gateway+"/v1"), option.WithAPIKey(l.key), option.WithMaxRetries(maxRetries),
		option.WithMiddleware(l.attempt))
	if l.config, err = rest.InClusterConfig(); err != nil {
		return err
	}
	l.apiServer, err = kubeclient.New(l.config)
	return err
}

// attempt notes an attempt that the client of OpenAI repeats, and one that net/http repeats on another connection by itself, as it does
// with requests that have an Idempotency-Key.
func (l *load) attempt(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	connections := 0
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if connections++; connections > 1 {
			l.repeated(errors.New("the gateway has closed the connection before it responded"))
		}
	}}
	response, err := next(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	switch {
	case err != nil:
		l.repeated(err)
	case response.StatusCode >= http.StatusMultipleChoices:
		l.repeated(fmt.Errorf("the gateway responded %s", response.Status))
	}
	return response, err
}

// converse has one conversation after another.
func (l *load) converse(ctx context.Context, worker int) {
	host, _ := os.Hostname()
	for n := 0; ctx.Err() == nil; n++ {
		last, err := l.conversation(ctx, fmt.Sprintf("%s, worker %d, conversation %d", host, worker, n))
		if err == nil {
			err = l.check(ctx, last)
		}
		if ctx.Err() != nil {
			return
		}
		l.note(func(s *Status) {
			s.Conversations++
			if len(l.finished) < maxFinished {
				l.finished = append(l.finished, last)
			}
		}, err)
	}
}

// probe sends small requests over new connections, which notice that nothing listens for a moment. Those that have a connection, and are
// few, do not.
func (l *load) probe(ctx context.Context, name string, request func(ctx context.Context) (*http.Client, *http.Request, error)) {
	for ctx.Err() == nil {
		client, r, err := request(ctx)
		if err == nil {
			err = expectOK(client, r)
		}
		if err != nil && ctx.Err() == nil {
			l.repeated(fmt.Errorf("probe of the %s: %w", name, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}

func expectOK(client *http.Client, r *http.Request) error {
	client.Timeout = 10 * time.Second
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func (l *load) probeGateway(ctx context.Context) (*http.Client, *http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.gateway+"/v1/models", http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+l.key)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, r, nil
}

func (l *load) probeResolveAPI(ctx context.Context) (*http.Client, *http.Request, error) {
	options, err := l.direct(ctx)
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(options.ResolveTLS.CAData)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, options.ResolveHost+"/apis/"+resolvev1alpha1.GroupVersion.String(), http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+l.config.BearerToken)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}, r, nil
}

// conversation returns the ID of the last turn. The engine's responses say whether it has seen all of them.
func (l *load) conversation(ctx context.Context, name string) (string, error) {
	last := ""
	for turn := range l.turns {
		text := fmt.Sprintf("%s, turn %d", name, turn)
		params := responses.ResponseNewParams{Model: "scripted", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)}}
		if last != "" {
			params.PreviousResponseID = param.NewOpt(last)
		}
		response, err := l.client.New(ctx, params, option.WithHeader("Idempotency-Key", text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", text, err)
		}
		want := fmt.Sprintf("You said %d things, from '%s, turn 0' to '%s'.", turn+1, name, text)
		if got := response.OutputText(); got != want {
			return "", fmt.Errorf("%s: the engine said %q, want %q", text, got, want)
		}
		last = response.ID
		l.note(func(s *Status) { s.Turns++ }, nil)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return last, nil
}

// check resolves a conversation through the kube-apiserver and directly. It repeats a resolve while no server responds.
func (l *load) check(ctx context.Context, last string) error {
	for name, options := range map[string]func(context.Context) (kube.Options, error){"through the kube-apiserver": l.through, "directly": l.direct} {
		var lastErr error
		err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
			o, err := options(ctx)
			if err == nil {
				err = l.resolve(ctx, last, o)
			}
			if lastErr = err; err != nil {
				l.repeated(fmt.Errorf("%s, %s: %w", last, name, err))
			}
			// A kube-apiserver that has just started grants nothing to anyone yet.
			return err == nil || !store.IsRetryable(err) && !apierrors.IsForbidden(err), nil
		})
		if err = errors.Join(err, lastErr); err != nil {
			return fmt.Errorf("%s, %s: %w", last, name, err)
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

func (l *load) resolve(ctx context.Context, last string, options kube.Options) error {
	s, err := kube.Open(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	history, err := s.Resolve(ctx, last, store.ResolveOptions{})
	if err != nil {
		return err
	}
	if len(history.Turns) != l.turns || len(history.Items) != 2*l.turns {
		return fmt.Errorf("got %d turns and %d items, want %d and %d", len(history.Turns), len(history.Items), l.turns, 2*l.turns)
	}
	return nil
}

// checkAll checks all finished conversations again.
func (l *load) checkAll(ctx context.Context) Status {
	l.mu.Lock()
	finished := slices.Clone(l.finished)
	l.mu.Unlock()
	checked := &load{turns: l.turns, namespace: l.namespace, config: l.config, apiServer: l.apiServer}
	for _, last := range finished {
		checked.note(func(s *Status) { s.Conversations++ }, checked.check(ctx, last))
	}
	return checked.status()
}

func (l *load) note(count func(*Status), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		count(&l.counts)
		return
	}
	l.counts.Failed.add(err)
}

func (l *load) repeated(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Repeated.add(err)
}

func (l *load) status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.counts
	s.Failed.Last, s.Repeated.Last = slices.Clone(s.Failed.Last), slices.Clone(s.Repeated.Last)
	return s
}
