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
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/testutil"
)

// hungBucket is a bucket in a file system, in which a file can hang as on an unresponsive NFS server.
type hungBucket struct {
	*blobStore
	dir string
}

func openHungBucket(t *testing.T) hungBucket {
	t.Helper()
	dir := t.TempDir()
	store := openStore(t, "file://"+dir+"?no_tmp_dir=true&metadata=skip", "one").(*blobStore)
	store.timeout = 50 * time.Millisecond
	return hungBucket{store, dir}
}

// hang replaces a file with one that blocks when it is opened, and restore undoes that.
func (b hungBucket) hang(t *testing.T, name string) (restore func()) {
	t.Helper()
	path := filepath.Join(b.dir, name)
	aside := path + ".aside"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	must(os.MkdirAll(filepath.Dir(path), 0o700))
	must(syscall.Mkfifo(path, 0o600)) // opening it for reading blocks until there is a writer
	return func() {
		t.Helper()
		hung := path + ".hung"
		must(os.Rename(path, hung)) // later requests do not block on it
		if err := os.Rename(aside, path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		testutil.Eventually(t, func(context.Context) error {
			// A request may have found the file before it was renamed and open it only after a writer has closed it.
			writer, err := os.OpenFile(hung, os.O_RDWR, 0)
			must(err)
			must(writer.Close())
			if abandoned := len(b.files.slots); abandoned > 0 {
				return errors.New("requests are still in progress")
			}
			return nil
		})
		must(os.Remove(hung))
	}
}

// TestHungFileSystem: a request to an unresponsive file system ends at its deadline, and succeeds once the file system responds.
func TestHungFileSystem(t *testing.T) {
	key := newKey()
	part, since := Part{Session: session, Key: key}, time.Unix(0, 0)
	tests := map[string]struct {
		file    string // the one that hangs
		request func(ctx context.Context, store *blobStore) error
	}{
		"read": {file: blobName(session, key), request: func(ctx context.Context, store *blobStore) error {
			ctx, cancel := context.WithTimeout(ctx, store.timeout)
			defer cancel()
			_, err := store.Read(ctx, session, key, 1, 100)
			return err
		}},
		"write": {file: claimName, request: func(ctx context.Context, store *blobStore) error { // the claim is read first
			store.claim.checked.Store(nil)
			_, err := store.Write(ctx, session, key, raw([]byte("new")))
			return err
		}},
		"claim": {file: claimName, request: func(ctx context.Context, store *blobStore) error { return store.Claim(ctx, nil) }},
		"list":  {file: blobName(session, key) + ".attrs", request: func(ctx context.Context, store *blobStore) error { return first(store.List(ctx)) }},
		"find": {file: blobName(session, key) + ".attrs", request: func(ctx context.Context, store *blobStore) error {
			_, err := store.Find(ctx, session, key, 1)
			return err
		}},
		"hold-off": {file: sweeperName, request: func(ctx context.Context, store *blobStore) error {
			_, _, err := store.HeldOff(ctx)
			return err
		}},
		"remove a mark": {
			file:    blobName(session, key) + markInfix + since.UTC().Format(time.RFC3339) + ".attrs",
			request: func(ctx context.Context, store *blobStore) error { return store.Mark(ctx, part, time.Time{}) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := openHungBucket(t)
			if err := b.Claim(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Write(t.Context(), session, key, raw([]byte("data"))); err != nil {
				t.Fatal(err)
			}
			if err := b.Mark(t.Context(), part, since); err != nil {
				t.Fatal(err)
			}
			restore := b.hang(t, tc.file)
			if err := tc.request(t.Context(), b.blobStore); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want context.DeadlineExceeded", err)
			}
			restore()
			b.timeout = bucketTimeout
			if err := tc.request(t.Context(), b.blobStore); err != nil {
				t.Errorf("after the file system has responded: %v", err)
			}
		})
	}
}

// TestHungFileSystemAtOpen: opening a bucket in an unresponsive file system ends at its deadline.
func TestHungFileSystemAtOpen(t *testing.T) {
	scheme := fmt.Sprintf("hung%d", time.Now().UnixNano()) // it stays registered
	synctest.Test(t, func(t *testing.T) {                  // the deadline is in fake time
		opener := hungOpener{make(chan struct{})}
		blob.DefaultURLMux().RegisterBucket(scheme, opener)
		if _, _, err := Open(t.Context(), nil, scheme+"://directory"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want context.DeadlineExceeded", err)
		}
		close(opener.responds)
	})
}

// hungOpener opens buckets as Go opens a directory: it ignores the context.
type hungOpener struct{ responds chan struct{} }

func (o hungOpener) OpenBucketURL(context.Context, *url.URL) (*blob.Bucket, error) {
	<-o.responds
	return nil, errors.New("too late")
}

// TestHungFileSystemIsBounded: the number of requests blocked on a hung file system is bounded. Beyond the limit, even a
// request without a deadline fails.
func TestHungFileSystemIsBounded(t *testing.T) {
	b := openHungBucket(t)
	if err := b.Claim(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	key := newKey()
	if _, err := b.Write(t.Context(), session, key, raw([]byte("data"))); err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context) error {
		reader, err := b.Read(ctx, session, key, 1, 100)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(reader)
		if string(data) != "data" {
			t.Errorf("read %q", data)
		}
		return err
	}
	for range 2 {
		restore := b.hang(t, blobName(session, key))
		for b.files.abandoned.Load() < maxFileRequests {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want context.DeadlineExceeded", err)
			}
			cancel()
		}
		if err := read(t.Context()); !errors.Is(err, errHung) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnreadable) {
			t.Errorf("without a deadline: got %v, want %v", err, errHung)
		}
		if inProgress := len(b.files.slots); inProgress != maxFileRequests {
			t.Errorf("%d requests are in progress, want %d", inProgress, maxFileRequests)
		}
		restore()
		if abandoned := b.files.abandoned.Load(); abandoned != 0 {
			t.Errorf("%d requests are abandoned, want none", abandoned)
		}
		var group errgroup.Group
		for range 3 * maxFileRequests { // requests beyond the limit wait
			group.Go(func() error { return read(t.Context()) })
		}
		if err := group.Wait(); err != nil {
			t.Errorf("after the file system has responded: %v", err)
		}
	}
}
