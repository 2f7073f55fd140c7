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

// Package gateway_test tests the gateway as its users run it: two replicas as separate processes, built with the race
// detector, on a real API server with the operator, called with OpenAI's own clients and others.
package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
)

// Shared by all tests, which do not run in parallel.
var (
	env *testenv.Environment
	// operator is the process that the aggregation layer forwards to.
	operator *catenatest.Operator
	// engineURL is the URL of the engines.
	engineURL string
	// replicas are the gateways, which share nothing but the cluster.
	replicas [2]*testenv.Gateway
	// targets are the URLs of the replicas for the proxy, which a test that restarts them changes.
	targets [2]atomic.Pointer[url.URL]
	// bucket is the URL of the bucket that the operator reads besides SnapshotChunks. The replicas do not use it.
	bucket string
	// alternating is the URL of a proxy that sends each request to the other replica.
	alternating string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	engine := httptest.NewServer(engines())
	defer engine.Close()
	engineURL = engine.URL
	balancer := httptest.NewServer(alternate())
	defer balancer.Close()
	alternating = balancer.URL
	dir, err := os.MkdirTemp("", "catena-bucket-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bucket = "file://" + dir + "?no_tmp_dir=true"
	return testenv.RunSuite(m.Run, start)
}

// engines returns the scripted engine, and the strict one for all other models and endpoints.
func engines() http.Handler {
	scripted, strict := enginetest.Handler(), enginetest.Strict()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the gateway has disconnected
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		model := gjson.GetBytes(body, "model")
		if r.URL.Path != "/v1/responses" || model.Exists() && model.Str != enginetest.Model {
			strict.ServeHTTP(w, r)
			return
		}
		scripted.ServeHTTP(w, r)
	})
}

func start(ctx context.Context, started *testenv.Environment) (err error) {
	env = started
	if operator, err = env.StartOperator(ctx, operatorOptions(0)); err != nil {
		return err
	}
	return startReplicas(ctx)
}

func startReplicas(ctx context.Context) (err error) {
	for i := range replicas {
		if err := startReplica(ctx, i, 0); err != nil {
			return err
		}
	}
	return nil
}

func startReplica(ctx context.Context, i, port int) (err error) {
	if replicas[i], err = env.StartGateway(ctx, testenv.GatewayOptions{Upstream: engineURL, Port: port, Race: true}); err != nil {
		return err
	}
	target, err := url.Parse(replicas[i].URL)
	if err != nil {
		return err
	}
	targets[i].Store(target)
	return nil
}

func operatorOptions(port int) catenatest.OperatorOptions {
	return catenatest.OperatorOptions{Port: port, Args: []string{"--shutdown-delay-duration=0s", "--snapshot-store=" + bucket}}
}

// alternate returns a proxy that alternates between the replicas.
func alternate() http.Handler {
	var requests atomic.Int64
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(targets[requests.Add(1)%2].Load()) },
		// If a replica closes an idle connection just as a request is sent on it, the proxy reports an error.
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise the server closes a request's body as soon as the response begins. If the proxy has forwarded the last
		// byte of the body, but not yet read EOF, it then aborts the response.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			panic(err) // unreachable: HTTP/1 servers support it
		}
		proxy.ServeHTTP(w, r)
	})
}
