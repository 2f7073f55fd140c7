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

// Package requests shares out a client's requests to the API server among namespaces, and adapts its concurrent writes to the
// capacity of the API server. It is used with client-go's own rate limit disabled. API priority and fairness cannot do the
// first: it tells users apart, and all requests of an operator or a gateway have the same one.
package requests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// Limits are the maximum numbers of requests for the objects of namespaces that are in progress at once. Namespaces share them
// as in fair.Budget: one alone may use half.
type Limits struct {
	// Writes is halved, for one namespace or for all as in fair.Throttle, if the API server refuses a write, or does not answer it within its
	// deadline and 10 s, and raised by one, up to the initial number, after as many successes.
	// client-go retries a refused request after the time that the API server requests; otherwise all would do so at once.
	//
	// A slow write has no effect: it may be slow because of the size of one namespace's object.
	Writes int64
	// Reads, if 0, are not limited. A read is in progress until its response has been read.
	Reads int64
}

// Limiter limits the requests of all clients that it is given. Requests without a namespace are not limited: those are access
// reviews, and lists of all namespaces. It is safe for concurrent use.
type Limiter struct {
	writes *fair.Throttle
	reads  *fair.Budget
}

// NewLimiter returns a limiter.
func NewLimiter(limits Limits) *Limiter {
	l := &Limiter{writes: fair.NewThrottle(limits.Writes)}
	if limits.Reads > 0 {
		l.reads = fair.NewBudget(limits.Reads)
	}
	return l
}

// Limit returns a copy of a client configuration whose requests are limited.
func (l *Limiter) Limit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{limiter: l, next: next} })
	return config
}

// Writes returns the number of writes that may be in progress at once, where that is lowest.
func (l *Limiter) Writes() int64 { return l.writes.Limit() }

// Metric returns a gauge with the current limit of writes.
func (l *Limiter) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "catena_write_limit",
		Help: "Maximum number of concurrent writes to the API server, of the namespace for which it is lowest. It decreases if the API server refuses writes.",
	}, func() float64 { return float64(l.Writes()) })
}

type beforeWriteKey struct{}

// BeforeWrite returns a context for writes that call a function each time that they are about to be sent: they may have waited for their turn
// before, for long. If it returns an error, the write is not sent, and fails with that error. The function may not write.
func BeforeWrite(ctx context.Context, check func(context.Context) error) context.Context {
	return context.WithValue(ctx, beforeWriteKey{}, check)
}

type transport struct {
	limiter *Limiter
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper. client-go calls it for each attempt, so that a request does not count while it waits
// for its next attempt.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	namespace, reads := namespaceOf(request.URL.Path), t.limiter.reads
	switch {
	case namespace == "", request.Method == http.MethodGet && reads == nil:
		return t.next.RoundTrip(request)
	case request.Method == http.MethodGet:
		return t.read(request, namespace)
	}
	end, err := t.limiter.writes.Begin(request.Context(), namespace)
	if err != nil {
		return nil, err
	}
	if check, ok := request.Context().Value(beforeWriteKey{}).(func(context.Context) error); ok {
		if err := check(request.Context()); err != nil {
			end(fair.Unknown)
			return nil, err
		}
	}
	start := time.Now()
	response, err := t.next.RoundTrip(request)
	end(outcome(request.Context(), time.Since(start), response, err))
	return response, err
}

func (t *transport) read(request *http.Request, namespace string) (*http.Response, error) {
	reads := t.limiter.reads
	if err := reads.Acquire(request.Context(), namespace, 1); err != nil {
		return nil, err
	}
	release := sync.OnceFunc(func() { reads.Release(namespace, 1) })
	response, err := t.next.RoundTrip(request)
	if err != nil {
		release()
		return nil, err
	}
	response.Body = &body{response.Body, release}
	return response, nil
}

// body is the body of a response whose read ends when it is closed.
type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// WrappedRoundTripper gives client-go the transport below this one.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// unanswered is how long a write may take before its deadline means that the API server does not answer. Before, the write may only have
// waited too long to be sent.
const unanswered = 10 * time.Second

func outcome(ctx context.Context, took time.Duration, response *http.Response, err error) fair.Outcome {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && took >= unanswered:
		return fair.Refused
	case ctx.Err() != nil:
		return fair.Unknown
	case err != nil, response.StatusCode == http.StatusTooManyRequests:
		return fair.Refused
	case response.StatusCode >= http.StatusInternalServerError && !isTooLarge(response):
		return fair.Refused
	}
	return fair.Served
}

// maxStatus is more than the size of a Status that describes an internal error.
const maxStatus = 16 << 10

// isTooLarge reports whether the API server could not store an object because of its size, which says nothing about its load. The
// body of the response can still be read.
func isTooLarge(response *http.Response) bool {
	start := &bytes.Buffer{}
	_, _ = io.CopyN(start, response.Body, maxStatus) // the next reader of the body gets the error, too
	message := start.String()
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(start, response.Body), response.Body}
	return kubeclient.MeansTooLargeForEtcd(response.StatusCode, message)
}

// namespaceOf returns the namespace in the path of a request, or an empty string if it has none.
func namespaceOf(path string) string {
	_, rest, found := strings.Cut(path, "/namespaces/")
	if !found {
		return ""
	}
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}
