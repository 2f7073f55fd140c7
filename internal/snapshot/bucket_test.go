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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file://
	_ "gocloud.dev/blob/s3blob"   // s3://

	"github.com/catena-dev/catena/internal/testutil"
)

func TestFileBucket(t *testing.T) {
	testBucket(t, "file://"+t.TempDir()+"?no_tmp_dir=true")
}

// TestS3Bucket runs against a server that speaks S3, built from its Go module.
func TestS3Bucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	testBucket(t, "s3://snapshots?use_path_style=true&endpoint=http://"+startS3(t, "snapshots"))
}

// startS3 starts a server with one bucket and returns its address.
func startS3(t *testing.T, bucket string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "s3server")
	// With the flags of all programs, so that the SDK for S3 is compiled once.
	build := exec.CommandContext(t.Context(), "bash", "-c", `. ../flags.sh && go build -o "$0" .`, binary)
	build.Dir = filepath.Join(testutil.Root(), "hack", "s3server")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("unable to build the S3 server: %v\n%s", err, output)
	}
	root, sidecar := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(root, bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := exec.Command(binary, address, root, sidecar)
	server.Env = append(os.Environ(), "ROOT_ACCESS_KEY=test", "ROOT_SECRET_KEY=test-secret")
	server.Stdout, server.Stderr = &log, &log
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("log of the S3 server:\n%s", log.String())
		}
	})
	testutil.Eventually(t, func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("the S3 server does not listen: %w", err)
		}
		return connection.Close()
	})
	return address
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
	store := NewBlobStore(bucket)

	want := Bodies{Request: bytes.Repeat([]byte(`{"a":1} `), 1<<17), Response: []byte(`{ "b" : 1.0 }`)}
	ref := mustWrite(t, store, want)
	got, err := Stores{store}.Read(t.Context(), session, ref)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(want, got) {
		t.Error("the bytes differ")
	}

	for range 2 {
		if err := store.Claim(t.Context(), "one"); err != nil {
			t.Error(err)
		}
	}
	if err := store.Claim(t.Context(), "another"); !errors.Is(err, ErrForeign) {
		t.Errorf("claimed twice: got %v, want ErrForeign", err)
	}

	// Objects of others are left alone.
	for _, name := range []string{"readme", "team-a/resp.1/readme", "a/b/c/" + newKey()} {
		if err := bucket.WriteAll(t.Context(), name, []byte("hello"), nil); err != nil {
			t.Fatal(err)
		}
	}
	listed := list(t, store)
	if len(listed) != 1 || listed[0].Session != session || listed[0].Key != ref.Key || listed[0].Parts != 1 || time.Since(listed[0].Since).Abs() > time.Hour {
		t.Fatalf("listed %+v, want the one that was written", listed)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Stores{store}).Read(ctx, session, ref); errors.Is(err, ErrUnreadable) {
		t.Errorf("cancelled: got %v, want an error other than unreadable", err)
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
}

func list(t *testing.T, store Store) []Stored {
	t.Helper()
	var all []Stored
	for stored, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stored)
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
