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
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
	"gocloud.dev/blob/memblob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

var session = types.NamespacedName{Namespace: "team-a", Name: "resp.1"}

func memoryStore(t testing.TB) Store {
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = bucket.Close() })
	store := NewBlobStore(bucket, identity("one"))
	if err := store.Claim(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return store
}

// identity returns the same cluster identity on every call.
func identity(cluster string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return cluster, nil }
}

// raw returns a function that writes data as it is.
func raw(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

func mustWrite(t *testing.T, store Store, bodies Bodies) *v1alpha1.SnapshotReference {
	t.Helper()
	ref, err := Write(t.Context(), store, session, bodies)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestRoundTrip: all bytes are returned unchanged, and absent bodies stay absent.
func TestRoundTrip(t *testing.T) {
	store := memoryStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 4096)
		bodies := Bodies{Request: body.Draw(rt, "request"), Response: body.Draw(rt, "response"), Metadata: body.Draw(rt, "metadata")}
		ref, err := Write(t.Context(), store, session, bodies)
		if err != nil {
			rt.Fatal(err)
		}
		if least := int64(bodies.Size()); ref.SizeBytes <= least || ref.SizeBytes > least+Overhead {
			rt.Errorf("%d bytes are counted as %d", least, ref.SizeBytes)
		}
		got, err := Stores{store}.Read(t.Context(), session, ref)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(bodies, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestSizes: snapshots of any size can be read, including sizes around which the compressor changes its method.
func TestSizes(t *testing.T) {
	store := memoryStore(t)
	const near = 64 // bytes, more than the first line has
	for _, size := range []int{0, 256, 1 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 8 << 20} {
		step := max(1, size>>12)
		for n := max(0, size-near*step); n <= size+step; n += step {
			ref := mustWrite(t, store, Bodies{Request: bytes.Repeat([]byte("x"), n)})
			if got, err := (Stores{store}).Read(t.Context(), session, ref); err != nil || len(got.Request) != n {
				t.Errorf("%d bytes: got %d and %v", n, len(got.Request), err)
			}
		}
	}
}

// TestStreamed: a compressor that did not know the size of its input declares a window larger than that.
func TestStreamed(t *testing.T) {
	plain := []byte(`{"request":2}` + "\n{}")
	var compressed bytes.Buffer
	writer, err := zstd.NewWriter(&compressed, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range [][]byte{plain[:1], plain[1:]} {
		_, err := writer.Write(piece)
		if err := errors.Join(err, writer.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	store := memoryStore(t)
	ref := mustWrite(t, store, Bodies{Request: []byte(`{}`)})
	if _, err := store.Write(t.Context(), session, ref.Key, raw(compressed.Bytes())); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(plain)
	ref.SizeBytes, ref.StoredBytes, ref.SHA256 = int64(len(plain)), int64(compressed.Len()), hex.EncodeToString(sum[:])
	if got, err := (Stores{store}).Read(t.Context(), session, ref); err != nil || string(got.Request) != `{}` {
		t.Errorf("got %q and %v", got.Request, err)
	}
}

// TestImage: random data in base64 is stored in at most its decoded size.
func TestImage(t *testing.T) {
	image := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(image) // never fails
	ref := mustWrite(t, memoryStore(t), Bodies{Request: []byte(base64.StdEncoding.EncodeToString(image))})
	if most := int64(len(image) + len(image)/20); ref.StoredBytes > most {
		t.Errorf("%d bytes take %d, want at most %d", len(image), ref.StoredBytes, most)
	}
}

// TestWithin: the largest turn that can be stored can be read.
func TestWithin(t *testing.T) {
	const most = 1 << 20
	noise := make([]byte, most)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for name, bodies := range map[string]Bodies{"one body": {Request: noise}, "three": {noise[:9], noise[9:99], noise[99:]}} {
		ref := mustWrite(t, memoryStore(t), bodies)
		if !Within(ref, most) {
			t.Errorf("%s: %d bytes stored in %d are refused", name, ref.SizeBytes, ref.StoredBytes)
		}
		if ref.SizeBytes = most + Overhead + 1; Within(ref, most) {
			t.Errorf("%s: one byte more is not refused", name)
		}
	}
	if Within(&v1alpha1.SnapshotReference{SizeBytes: 100, StoredBytes: 1 << 30}, most) {
		t.Error("a snapshot that compression made larger is not refused")
	}
}

// TestEveryFlippedByte: damage is detected, unless it changes nothing, as some bits of the compressed frame's header do.
func TestEveryFlippedByte(t *testing.T) {
	store := memoryStore(t)
	want := Bodies{Request: []byte(`{"input":"` + strings.Repeat("ab", 200) + `"}`), Response: []byte(`{}`)}
	ref := mustWrite(t, store, want)
	reader, err := store.Read(t.Context(), session, ref.Key, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := range stored {
		damaged := bytes.Clone(stored)
		damaged[i] ^= 1
		if _, err := store.Write(t.Context(), session, ref.Key, raw(damaged)); err != nil {
			t.Fatal(err)
		}
		got, err := Stores{store}.Read(t.Context(), session, ref)
		if !errors.Is(err, ErrUnreadable) && (err != nil || !cmp.Equal(want, got)) {
			t.Errorf("byte %d: got %v and %s, want it unreadable", i, err, got.Request)
		}
	}
}

func TestUnreadable(t *testing.T) {
	plain := func(text string) (stored []byte, change func(*v1alpha1.SnapshotReference)) {
		sum := sha256.Sum256([]byte(text))
		return snapshotEncoder.EncodeAll([]byte(text), nil), func(ref *v1alpha1.SnapshotReference) {
			ref.SizeBytes, ref.SHA256 = int64(len(text)), hex.EncodeToString(sum[:])
		}
	}
	keep := func(*v1alpha1.SnapshotReference) {}
	bomb := snapshotEncoder.EncodeAll(make([]byte, 64<<20), nil)
	cases := map[string]struct {
		stored func() ([]byte, func(*v1alpha1.SnapshotReference))
		want   string
	}{
		"not compressed": {func() ([]byte, func(*v1alpha1.SnapshotReference)) { return []byte("hello"), keep }, "magic"},
		"empty":          {func() ([]byte, func(*v1alpha1.SnapshotReference)) { return []byte{}, keep }, "0 bytes"},
		"larger than its size": {func() ([]byte, func(*v1alpha1.SnapshotReference)) {
			return bomb, func(ref *v1alpha1.SnapshotReference) { ref.SizeBytes = 8 << 20 }
		}, "it has more than"},
		"much larger than its size, without a size in the frame": {func() ([]byte, func(*v1alpha1.SnapshotReference)) {
			return repeated(1000), func(ref *v1alpha1.SnapshotReference) { ref.SizeBytes = 8 << 20 }
		}, "it has more than"},
		"no header":                {func() ([]byte, func(*v1alpha1.SnapshotReference)) { return plain("hello") }, "header"},
		"a header beyond the size": {func() ([]byte, func(*v1alpha1.SnapshotReference)) { return plain(`{"request":9}` + "\n{}") }, "does not match"},
		"a negative length":        {func() ([]byte, func(*v1alpha1.SnapshotReference)) { return plain(`{"request":-1}` + "\n{}") }, "does not match"},
		"trailing data":            {func() ([]byte, func(*v1alpha1.SnapshotReference)) { return plain(`{"request":1}` + "\n{}") }, "after the last body"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			store := memoryStore(t)
			ref := mustWrite(t, store, Bodies{Request: []byte(`{}`)})
			stored, change := tc.stored()
			change(ref)
			ref.StoredBytes = int64(len(stored))
			if _, err := store.Write(t.Context(), session, ref.Key, raw(stored)); err != nil {
				t.Fatal(err)
			}
			_, err := Stores{store}.Read(t.Context(), session, ref)
			if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it unreadable because %q", err, tc.want)
			}
		})
	}
}

// repeated returns a frame without its size and with a window of 512 MiB: blocks of 128 Ki equal bytes.
func repeated(times int) []byte {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x98}
	for range times - 1 {
		frame = append(frame, 0x02, 0x00, 0x10, 'a') // a run-length encoded block
	}
	return append(frame, 0x03, 0x00, 0x10, 'a') // the last one
}

// TestMemory: the memory for reading depends on the data, not on the window that a frame declares.
func TestMemory(t *testing.T) {
	for name, compressed := range map[string][]byte{"small": repeated(1), "large": repeated(64)} {
		const size = 128 << 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decompress(make([]byte, 0, size), compressed)
		runtime.ReadMemStats(&after)
		if (err == nil) != (name == "small") {
			t.Fatalf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: takes %d bytes for %d", name, took, size)
		}
	}
}

// TestDecodeChunk: a chunk is decoded as encoding/json does it, and anything else is an error or has no data.
func TestDecodeChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "data")}}
		name := rapid.String().Draw(t, "session")
		chunk.Annotations = map[string]string{v1alpha1.SessionAnnotation: name, "spec": rapid.String().Draw(t, "another annotation")}
		object, err := json.Marshal(chunk)
		if err != nil {
			t.Fatal(err)
		}
		session, data, err := decodeChunk(object, nil)
		if want := strings.ToValidUTF8(name, "\uFFFD"); err != nil || session != want || !bytes.Equal(data, chunk.Spec.Data) {
			t.Errorf("%s: got session %q, data %x and %v", object, session, data, err)
		}
	})
	for _, object := range []string{
		``, `{`, `[]`, `null`, `{"spec":null}`, `{"spec":{"data":null}}`, `{"spec":{"data":{}}}`, `{"spec":{"data":"!"}}`, `{"spec":{"data":"\`,
		`{"metadata":{"annotations":{"sessions.catena.dev/session":1}},"spec":{"data":[]}}`, `{"metadata":[],"spec":[{"data":"eA=="}]}`,
	} {
		if _, data, err := decodeChunk([]byte(object), nil); err == nil && len(data) > 0 {
			t.Errorf("%s has the data %q", object, data)
		}
	}
}

// TestClosedConnection: a chunk is read again if its connection was closed before or during the response, as a load balancer does when an API
// server restarts.
func TestClosedConnection(t *testing.T) {
	want := Bodies{Request: bytes.Repeat([]byte("catena "), 1000)}
	var stored bytes.Buffer
	ref, err := encode(t.Context(), &stored, want)
	if err != nil {
		t.Fatal(err)
	}
	ref.Store, ref.Key, ref.Parts = v1alpha1.SnapshotStoreChunks, newKey(), 1
	chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: stored.Bytes()}}
	chunk.Annotations = map[string]string{v1alpha1.SessionAnnotation: session.Name}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch requests.Add(1) {
		case 2:
			_, _ = w.Write([]byte(`{"spec":`))
			_ = http.NewResponseController(w).Flush()
			fallthrough
		case 1:
			panic(http.ErrAbortHandler)
		}
		if err := json.NewEncoder(w).Encode(chunk); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubeclient.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (Stores{NewChunkStore(client)}).Read(t.Context(), session, ref); err != nil || !bytes.Equal(got.Request, want.Request) {
		t.Errorf("got %d bytes and %v", len(got.Request), err)
	}
}

// TestMarkChunk: an error that the owner of a chunk causes, or a change of the chunk, is told from a failure, and no error has its data.
func TestMarkChunk(t *testing.T) {
	tests := map[string]struct {
		code    int
		reason  metav1.StatusReason
		message string
		want    error
		failed  bool
	}{
		"invalid":            {code: 422, reason: metav1.StatusReasonInvalid, message: "SECRET", want: ErrRejected, failed: true},
		"too large":          {code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "SECRET", want: ErrRejected, failed: true},
		"too large for etcd": {code: 500, message: "etcdserver: request is too large SECRET", want: ErrRejected, failed: true},
		"changed":            {code: 409, reason: metav1.StatusReasonConflict, want: ErrChanged, failed: true},
		"forbidden":          {code: 403, reason: metav1.StatusReasonForbidden, failed: true},
		"failed":             {code: 500, reason: metav1.StatusReasonInternalError, failed: true},
		"marked":             {code: 200},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				status := metav1.Status{Status: metav1.StatusFailure, Code: int32(tc.code), Reason: tc.reason, Message: tc.message}
				status.Kind, status.APIVersion = "Status", "v1"
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				if err := json.NewEncoder(w).Encode(status); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			client, err := kubeclient.New(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			part := Part{Session: session, Key: newKey(), listed: &metav1.Preconditions{ResourceVersion: new("7")}}
			err = NewChunkStore(client).Mark(t.Context(), part, time.Now())
			if (err != nil) != tc.failed {
				t.Errorf("got %v, want an error: %t", err, tc.failed)
			}
			for _, kind := range []error{ErrRejected, ErrChanged} {
				if errors.Is(err, kind) != errors.Is(tc.want, kind) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error has the message of the API server: %v", err)
			}
		})
	}
}

// TestForeignReference: a reference does not give access to the snapshot of another session, or to a store that is not configured.
func TestForeignReference(t *testing.T) {
	store := memoryStore(t)
	ref := mustWrite(t, store, Bodies{Request: []byte(`{}`)})
	for name, other := range map[string]types.NamespacedName{
		"another session":   {Namespace: "team-a", Name: "resp.2"},
		"another namespace": {Namespace: "team-b", Name: "resp.1"},
	} {
		if _, err := (Stores{store}).Read(t.Context(), other, ref); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: got %v, want it unreadable", name, err)
		}
	}
	ref.Parts = 2
	if _, err := (Stores{store}).Read(t.Context(), session, ref); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("more parts than bytes: got %v, want it unreadable", err)
	}
	if _, err := (Stores{}).Read(t.Context(), session, ref); !errors.Is(err, ErrNotConfigured) || !errors.Is(err, ErrUnreadable) {
		t.Errorf("no store: got %v, want that it is not configured", err)
	}
}

// FuzzSplit: reading any data neither panics nor adds bytes.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"", "{}\n", `{"request":2,"response":2}` + "\n{}{}", `{"request":-9223372036854775808}` + "\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		bodies, err := split(plain)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(plain, bytes.Join([][]byte{bodies.Request, bodies.Response, bodies.Metadata}, nil)) {
			t.Errorf("%q is split into %+v", plain, bodies)
		}
	})
}

// TestManyParts: a deletion does not look for all parts of a reference, which can be to any number of them.
func TestManyParts(t *testing.T) {
	var looked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		looked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		status := apierrors.NewNotFound(schema.GroupResource{Resource: kubeclient.Chunks}, path.Base(r.URL.Path)).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(server.Close)
	client, err := kubeclient.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ref := &v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreChunks, Key: newKey(), Parts: 10_000}
	if err := (Stores{NewChunkStore(client)}).Delete(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, ref, nil); err != nil {
		t.Error(err)
	}
	if got := looked.Load(); got != maxDeletedParts {
		t.Errorf("%d parts were looked for, want %d", got, maxDeletedParts)
	}
}
