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

// Package writes adapts the operator's concurrent writes to the capacity of the API server. It is used with client-go's own
// rate limit disabled. client-go retries a request that is refused with 429 after the time that the API server requests;
// without this package, all workers would do so at once.
package writes

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// slowWrite is how long a write may take before it counts as refused. Kubernetes' own objective is that 99% of writes take
// less.
//
// It is not relative to the lowest recent latency, because writes differ too much: a status rewrites the whole object, from 1
// KB to 1.4 MB, and one tenant's large sessions would slow down the writes of all.
const slowWrite = time.Second

// Limiter limits the writes to the objects of namespaces that are in progress at once, across all clients: the limit is halved
// if the API server refuses a write or is slow, and raised by one after as many successes. Namespaces share them as in
// fair.Budget: one alone may use half. Reads are not limited, and neither are writes without a namespace, which are access
// reviews. It is safe for concurrent use.
type Limiter struct{ throttle *fair.Throttle }

// NewLimiter returns a limiter of at most a number of writes, which one namespace alone can have.
func NewLimiter(alone int) *Limiter { return &Limiter{fair.NewThrottle(2 * int64(alone))} }

// Limit returns a copy of a client configuration whose writes are limited.
func (l *Limiter) Limit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{limiter: l, next: next} })
	return config
}

// Current returns the number of writes that may be in progress at once.
func (l *Limiter) Current() int64 { return l.throttle.Limit() }

// Metric returns a gauge with the current limit.
func (l *Limiter) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "catena_write_limit",
		Help: "Maximum number of concurrent writes to the API server. It decreases if the API server refuses writes or is slow.",
	}, func() float64 { return float64(l.Current()) })
}

type transport struct {
	limiter *Limiter
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper. client-go calls it for each attempt, so that a write does not count while it waits
// for its next attempt.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	namespace := namespaceOf(request.URL.Path)
	if request.Method == http.MethodGet || namespace == "" {
		return t.next.RoundTrip(request)
	}
	end, err := t.limiter.throttle.Begin(request.Context(), namespace)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	response, err := t.next.RoundTrip(request)
	end(outcome(request.Context(), response, err, time.Since(start)))
	return response, err
}

// WrappedRoundTripper gives client-go the transport below this one.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func outcome(ctx context.Context, response *http.Response, err error, took time.Duration) fair.Outcome {
	switch {
	case took >= slowWrite:
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
	body := start.String()
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(start, response.Body), response.Body}
	return kubeclient.MeansTooLargeForEtcd(response.StatusCode, body)
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
