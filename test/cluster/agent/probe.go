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
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

// probePause is between two probes of the same server.
const probePause = 30 * time.Millisecond

// probe sends small requests over new connections, which notice that nothing listens for a moment. Those that have a connection, and are
// few, do not.
func (l *load) probe(ctx context.Context, name string, request func(ctx context.Context) (*http.Client, *http.Request, error)) {
	for ctx.Err() == nil {
		client, r, err := request(ctx)
		if err == nil {
			err = expectOK(client, r)
		}
		if err != nil && ctx.Err() == nil {
			l.count(func(s *Status) { s.Probed.add(fmt.Errorf("probe of the %s: %w", name, err)) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}

func expectOK(client *http.Client, r *http.Request) error {
	client.Timeout = 10 * time.Second
	p := &phases{begun: time.Now()}
	response, err := client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), p.trace())))
	if err != nil {
		return fmt.Errorf("%w (%s)", err, p)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// phases says how far a request has come, and when.
type phases struct {
	begun time.Time

	mu    sync.Mutex
	steps []string
}

func (p *phases) add(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, fmt.Sprintf(format, args...)+" after "+time.Since(p.begun).Round(time.Millisecond).String())
}

func (p *phases) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(strings.Join(p.steps, ", "), "no connection was begun")
}

func (p *phases) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSDone:              func(httptrace.DNSDoneInfo) { p.add("address known") },
		ConnectDone:          func(_, address string, err error) { p.add("connected to %s (%v)", address, err) },
		TLSHandshakeDone:     func(_ tls.ConnectionState, err error) { p.add("TLS handshake (%v)", err) },
		GotConn:              func(info httptrace.GotConnInfo) { p.add("connection %s", info.Conn.LocalAddr()) },
		WroteRequest:         func(info httptrace.WroteRequestInfo) { p.add("request sent (%v)", info.Err) },
		GotFirstResponseByte: func() { p.add("first byte of the response") },
	}
}

func (l *load) probeGateway(ctx context.Context) (*http.Client, *http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.gateway+"/v1/models", http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+l.key)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, r, nil
}

// probeAPIServer resolves a conversation through the kube-apiserver, over a connection that exists. Unlike the library, it repeats nothing.
func (l *load) probeAPIServer(ctx context.Context) (*http.Client, *http.Request, error) {
	path := "/apis/" + resolvev1alpha1.GroupVersion.String()
	l.mu.Lock()
	if len(l.finished) > 0 {
		path += "/namespaces/" + l.namespace + "/" + resolvev1alpha1.Resource + "/" + l.finished[0].last()
	}
	l.mu.Unlock()
	client, err := rest.HTTPClientFor(l.config)
	if err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.config.Host+path, http.NoBody)
	return client, r, err
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
