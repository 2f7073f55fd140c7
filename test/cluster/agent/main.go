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

// Command agent is what test/cluster runs in the cluster: a scripted engine, and a client that has conversations all the time.
//
//	agent engine                 serves the Responses API on port 8000
//	agent load [flags]           talks to a gateway, and serves /status and /check on port 8000
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
)

const address = ":8000"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("want engine or load")
	}
	switch args[0] {
	case "engine":
		return serve(ctx, slowly(enginetest.Handler()))
	case "load":
		return runLoad(ctx, args[1:])
	default:
		return fmt.Errorf("unknown command %q: want engine or load", args[0])
	}
}

func runLoad(ctx context.Context, args []string) error {
	l := &load{}
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&l.gateway, "gateway", "", "base URL of the gateway")
	flags.StringVar(&l.key, "key", "none", "API key of the tenant")
	flags.StringVar(&l.namespace, "namespace", "", "namespace of the tenant")
	flags.IntVar(&l.turns, "turns", 8, "turns of a conversation")
	workers := flags.Int("workers", 4, "conversations at the same time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := l.connect(); err != nil {
		return err
	}
	for i := range *workers {
		go l.converse(ctx, i)
	}
	for i := range streams {
		go l.stream(ctx, i)
	}
	go l.probe(ctx, "gateway", l.probeGateway)
	go l.probe(ctx, "resolve API through the kube-apiserver", l.probeAPIServer)
	go l.probe(ctx, "resolve API", l.probeResolveAPI)
	mux := http.NewServeMux()
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, l.status()) })
	mux.HandleFunc("/check", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, l.checkAll(r.Context())) })
	return serve(ctx, mux)
}

func serve(ctx context.Context, handler http.Handler) error {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status Status) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(status); err != nil {
		panic(http.ErrAbortHandler) // the test has gone away
	}
}

// slowly has an engine stream the responses of slowModel slowly.
func slowly(engine http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if gjson.GetBytes(body, "model").Str == slowModel {
			w = &slowWriter{ResponseWriter: w, done: r.Context().Done()}
		}
		engine.ServeHTTP(w, r)
	})
}

// slowWriter waits before it flushes, once for each event.
type slowWriter struct {
	http.ResponseWriter
	done <-chan struct{}
}

// FlushError implements the interface of http.ResponseController.
func (w *slowWriter) FlushError() error {
	select {
	case <-w.done:
	case <-time.After(eventPause):
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
