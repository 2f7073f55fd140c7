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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file://
	"gocloud.dev/blob/memblob"
	_ "gocloud.dev/blob/s3blob" // s3://

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/s3test"
)

func TestFileBucket(t *testing.T) {
	testBucket(t, "file://"+t.TempDir()+"?no_tmp_dir=true")
}

// TestS3Bucket runs against an S3-compatible server, built from its Go module.
func TestS3Bucket(t *testing.T) {
	setS3Credentials(t)
	server, err := s3test.Start(t.Context(), t.TempDir(), "snapshots")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil || t.Failed() {
			t.Logf("stopped the S3 server: %v; its log:\n%s", err, server.Log())
		}
	})
	testBucket(t, server.BucketURL("snapshots"))

	store := openStore(t, server.BucketURL("misspelt"), "one")
	if _, err := store.Read(t.Context(), session, newKey(), 1, 100); err == nil || errors.Is(err, ErrUnreadable) {
		t.Errorf("a bucket that does not exist: got %v, want an error other than unreadable", err)
	}
}

func setS3Credentials(t *testing.T) {
	t.Helper()
	for name, value := range s3test.Environment {
		t.Setenv(name, value)
	}
}

// openStore opens a cluster's store in a bucket.
func openStore(t *testing.T, url, cluster string) Store {
	t.Helper()
	bucket, err := blob.OpenBucket(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	return NewBlobStore(bucket, identity(cluster))
}

// TestLostBucket: a snapshot is lost if it is missing from the bucket that it was written to, but not if the bucket itself
// is missing.
func TestLostBucket(t *testing.T) {
	here := func(dir string, path ...string) string { return filepath.Join(append([]string{dir}, path...)...) }
	tests := map[string]struct {
		lose func(dir string, ref string) error
		want error
		// unreadable is set if the session is marked unreadable.
		unreadable bool
		// wantClaim is the error that the operator gets when it claims the bucket again.
		wantClaim error
	}{
		"lost snapshot": {
			lose: func(dir, ref string) error { return os.Remove(here(dir, session.String(), ref)) },
			want: ErrUnreadable, unreadable: true,
		},
		"lost bucket": {
			lose: func(dir, _ string) error { return os.Rename(dir, dir+"-moved") },
			want: ErrUnclaimed, wantClaim: ErrUnclaimed,
		},
		"emptied bucket": {
			lose: func(dir, _ string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
			want: ErrUnclaimed, wantClaim: ErrUnclaimed,
		},
		"lost snapshot and claim": {
			lose: func(dir, ref string) error {
				return errors.Join(os.Remove(here(dir, session.String(), ref)), os.Remove(here(dir, claimName)))
			},
			want: ErrUnclaimed, // another snapshot proves that it is the right bucket
		},
		"bucket of another cluster": {
			lose: func(dir, _ string) error {
				return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(here(dir, claimName), []byte("another"), 0o600))
			},
			want: ErrForeign, wantClaim: ErrForeign,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bucket")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			store := openStore(t, "file://"+dir+"?no_tmp_dir=true&metadata=skip", "one")
			if err := store.Claim(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			ref, other := mustWrite(t, store, Bodies{}), mustWrite(t, store, Bodies{})
			if err := tc.lose(dir, ref.Key); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Read(t.Context(), session, ref.Key, 1, 100); !errors.Is(err, tc.want) || errors.Is(err, ErrUnreadable) != tc.unreadable {
				t.Errorf("read: got %v, want %v", err, tc.want)
			}
			if err := store.Claim(t.Context(), nil); !tc.unreadable && err == nil {
				t.Error("claimed without a known snapshot")
			}
			known := []Part{{Session: session, Key: ref.Key}, {Session: session, Key: other.Key}}
			if err := store.Claim(t.Context(), known); !errors.Is(err, tc.wantClaim) {
				t.Errorf("claim: got %v, want %v", err, tc.wantClaim)
			}
			if _, err := store.Read(t.Context(), session, ref.Key, 1, 100); tc.wantClaim == nil && !errors.Is(err, ErrUnreadable) {
				t.Errorf("read after the claim: got %v, want it unreadable", err)
			}
		})
	}
}

// TestPrefix: a prefix must be a folder, so that nothing below it looks like another namespace without the prefix.
func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{"a/": true, "a/b/": true, "a": false, "a/b": false} {
		_, closeAll, err := Open(t.Context(), nil, "file://"+t.TempDir()+"?no_tmp_dir=true&prefix="+prefix)
		if (err == nil) != want {
			t.Errorf("%q: got %v", prefix, err)
		}
		if err == nil {
			_ = closeAll()
		}
	}
}

func testBucket(t *testing.T, url string) {
	bucket, err := blob.OpenBucket(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	store, foreign := NewBlobStore(bucket, identity("one")), NewBlobStore(bucket, identity("another"))
	if _, err := Write(t.Context(), store, session, Bodies{}); !errors.Is(err, ErrUnclaimed) {
		t.Errorf("written to an unclaimed bucket: got %v, want ErrUnclaimed", err)
	}
	for range 2 {
		if err := store.Claim(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := foreign.Claim(t.Context(), nil); !errors.Is(err, ErrForeign) {
		t.Errorf("claimed twice: got %v, want ErrForeign", err)
	}
	if _, err := Write(t.Context(), foreign, session, Bodies{}); !errors.Is(err, ErrForeign) {
		t.Errorf("written to the bucket of another cluster: got %v, want ErrForeign", err)
	}

	want := Bodies{Request: bytes.Repeat([]byte(`{"a":1} `), 1<<17), Response: []byte(`{ "b" : 1.0 }`)}
	ref := mustWrite(t, store, want)
	got, err := Stores{store}.Read(t.Context(), session, ref)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(want, got) {
		t.Error("the bodies differ from those written")
	}

	// Unrelated objects are ignored.
	for _, name := range []string{"readme", "team-a/resp.1/readme", "a/b/c/" + newKey()} {
		if err := bucket.WriteAll(t.Context(), name, []byte("hello"), nil); err != nil {
			t.Fatal(err)
		}
	}
	listed := list(t, store)
	if len(listed) != 1 || listed[0].Session != session || listed[0].Key != ref.Key || listed[0].Index != 0 || !listed[0].Unreferenced.IsZero() || time.Since(listed[0].Written).Abs() > time.Hour {
		t.Fatalf("listed %+v, want the one that was written", listed)
	}

	// If two leaders write marks, the earlier one counts.
	mark := func(since time.Time) time.Time {
		t.Helper()
		if err := store.Mark(t.Context(), listed[0], since); err != nil {
			t.Fatal(err)
		}
		again := list(t, store)
		if len(again) != 1 {
			t.Fatalf("listed %+v, want one", again)
		}
		return again[0].Unreferenced
	}
	first := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	for _, since := range []time.Time{first, first.Add(time.Hour), first} {
		if got := mark(since); !got.Equal(first) {
			t.Errorf("marked at %s after a mark at %s, want %s", got, since, first)
		}
	}
	for range 2 {
		if removed := mark(time.Time{}); !removed.IsZero() {
			t.Errorf("still marked at %s", removed)
		}
	}
	listed[0].Unreferenced = mark(time.Now()) // it is deleted with its mark

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Stores{store}).Read(ctx, session, ref); errors.Is(err, ErrUnreadable) {
		t.Errorf("canceled: got %v, want an error other than unreadable", err)
	}

	flip(t, bucket, blobName(session, ref.Key))
	if _, err := (Stores{store}).Read(t.Context(), session, ref); !errors.Is(err, ErrUnreadable) {
		t.Errorf("damaged: got %v, want it unreadable", err)
	}
	for range 2 {
		if err := store.Delete(t.Context(), listed[0]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (Stores{store}).Read(t.Context(), session, ref); !errors.Is(err, ErrUnreadable) {
		t.Errorf("deleted: got %v, want it unreadable", err)
	}
	if listed := list(t, store); len(listed) > 0 {
		t.Errorf("listed %+v after it was deleted", listed)
	}
	if left, err := bucket.List(&blob.ListOptions{Prefix: blobName(session, ref.Key)}).Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("a mark remains: %+v, %v", left, err)
	}
}

func list(t *testing.T, store Store) []Part {
	t.Helper()
	var all []Part
	for part, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part)
	}
	return all
}

func flip(t *testing.T, bucket *blob.Bucket, name string) {
	t.Helper()
	data, err := bucket.ReadAll(t.Context(), name)
	if err == nil {
		data[len(data)/2] ^= 1
		err = bucket.WriteAll(t.Context(), name, data, nil)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("unable to damage %s: %w", name, err))
	}
}

// TestLargerThanReferenced: not much more of an object is read than its reference says is stored.
func TestLargerThanReferenced(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = bucket.Close() })
	store := NewBlobStore(bucket, identity("one"))
	if err := store.Claim(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	ref := &v1alpha1.SnapshotReference{Store: store.Name(), Key: newKey(), Parts: 1, SizeBytes: 1, StoredBytes: 1, SHA256: strings.Repeat("0", 64)}
	if err := bucket.WriteAll(t.Context(), blobName(session, ref.Key), make([]byte, 64<<20), nil); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Stores{store}.Read(t.Context(), session, ref)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrUnreadable) || took > 1<<20 {
		t.Errorf("reading took %d bytes and returned %v, want ErrUnreadable", took, err)
	}
}

// TestUnavailableSnapshot: only a bucket that is there and lacks the object proves that a snapshot is gone. Whatever else a bucket answers
// is an error of the request.
func TestUnavailableSnapshot(t *testing.T) {
	setS3Credentials(t)
	for code, status := range map[string]int{
		"InvalidObjectState": http.StatusForbidden, // archived
		"AccessDenied":       http.StatusForbidden,
		"PermanentRedirect":  http.StatusMovedPermanently, // to another region
		"NoSuchBucket":       http.StatusNotFound,
		"NoSuchKey":          http.StatusNotFound, // the claim is missing as well
	} {
		t.Run(code, func(t *testing.T) {
			asked := map[string]bool{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked[r.Method] = true
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code></Error>`, code)
			}))
			t.Cleanup(server.Close)
			store := openStore(t, "s3://snapshots?use_path_style=true&endpoint="+server.URL, "one")
			_, err := store.Read(t.Context(), session, newKey(), 1, 100)
			if err == nil || errors.Is(err, ErrUnreadable) || !asked[http.MethodGet] {
				t.Errorf("got %v, want an error other than unreadable; requests: %v", err, asked)
			}
		})
	}
}
