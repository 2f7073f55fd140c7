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

package snapshot

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestUnresponsiveBucket: each request to a bucket that accepts connections but never responds ends with an error.
func TestUnresponsiveBucket(t *testing.T) {
	setS3Credentials(t)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() {
		close(release)
		server.Close()
	})
	store := openStore(t, "s3://snapshots?use_path_style=true&endpoint="+server.URL, "one").(*blobStore)
	store.timeout = 50 * time.Millisecond
	part := Part{Session: session, Key: newKey()}
	marked := part
	marked.Unreferenced = time.Unix(0, 0)
	for name, request := range map[string]func(ctx context.Context) error{
		"claim":          func(ctx context.Context) error { return store.Claim(ctx, []Part{part}) },
		"list":           func(ctx context.Context) error { return first(store.List(ctx)) },
		"mark":           func(ctx context.Context) error { return store.Mark(ctx, part, time.Unix(0, 0)) },
		"remove a mark":  func(ctx context.Context) error { return store.Mark(ctx, part, time.Time{}) },
		"delete":         func(ctx context.Context) error { return store.Delete(ctx, part) },
		"delete, marked": func(ctx context.Context) error { return store.Delete(ctx, marked) },
		"write": func(ctx context.Context) error { // the claim is read first
			_, err := store.Write(ctx, session, part.Key, raw([]byte("x")))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := request(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want context.DeadlineExceeded", err)
			}
		})
	}
}

func first(list iter.Seq2[Part, error]) error {
	for _, err := range list {
		return err
	}
	return nil
}
