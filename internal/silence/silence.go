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

// Package silence notices when the API server, or a proxy in front of it, has stopped sending the data of a response, or sends data
// without end: it ends the request with an error, so that a watch is started again, and an export ends. It has a metric of how long a watch has
// received nothing.
package silence

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// ErrSilent is the error of a request if the API server does not respond, or stops sending the response, and ErrEndless if the
// response does not end.
var (
	ErrSilent  = errors.New("no data was received for too long")
	ErrEndless = errors.New("the response did not end in time")
)

// The API server ends a watch between MinWatchTime, for the options of a reflector, and twice that. The reflector then continues
// the watch. It receives a list as the beginning of a watch: one of a million objects takes some minutes.
//
// Any response must have ended MaxResponseTime after its request: a minute after the API server should have ended a watch.
const (
	MinWatchTime    = 10 * time.Minute
	MaxResponseTime = 2*MinWatchTime + time.Minute
)

// Limit returns a copy of a client configuration whose requests end with ErrSilent once they have received nothing for the
// timeout, and with ErrEndless if they are still open after MaxResponseTime.
func Limit(config *rest.Config, timeout time.Duration) *rest.Config {
	return limit(config, timeout, MaxResponseTime)
}

func limit(config *rest.Config, timeout, total time.Duration) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &transport{timeout: timeout, total: total, next: next}
	})
	return config
}

type transport struct {
	timeout, total time.Duration
	next           http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	silent := time.AfterFunc(t.timeout, func() { cancel(ErrSilent) })
	endless := time.AfterFunc(t.total, func() { cancel(ErrEndless) })
	end := func() {
		silent.Stop()
		endless.Stop()
		cancel(nil)
	}
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		err = cause(ctx, err)
		end()
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, end: end, silent: silent, timeout: t.timeout}
	return response, nil
}

// WrappedRoundTripper gives client-go the transport below this one.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// body is the body of a response.
type body struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // of the request
	end     func()
	silent  *time.Timer
	timeout time.Duration
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.silent.Reset(b.timeout)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cause(b.ctx, err)
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// cause returns ErrSilent or ErrEndless in place of the error of a request that was canceled because of it.
func cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrSilent) || errors.Is(cause, ErrEndless) {
		return cause
	}
	return err
}
