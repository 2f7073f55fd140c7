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
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gocloud.dev/blob/memblob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

func TestCheckFormats(t *testing.T) {
	newest := &v1alpha1.SnapshotReference{Format: v1alpha1.MaxSnapshotFormat}
	tests := map[string]struct {
		bodies int64
		ref    *v1alpha1.SnapshotReference
		want   string
	}{
		"none":                   {},
		"none, external":         {ref: &v1alpha1.SnapshotReference{}},
		"newest":                 {bodies: v1alpha1.MaxFormat, ref: newest},
		"newer bodies":           {bodies: 3, want: "its bodies are in format 3, and the operator reads formats up to 2: upgrade the operator"},
		"newer bodies, external": {bodies: 3, ref: newest, want: "its bodies are in format 3, and the operator reads formats up to 2: upgrade the operator"},
		"newer snapshot":         {bodies: 1, ref: &v1alpha1.SnapshotReference{Format: 3}, want: "its snapshot is in format 3, and the operator reads formats up to 1: upgrade the operator"},
		"largest format":         {bodies: 1<<63 - 1, want: "its bodies are in format 9223372036854775807, and the operator reads formats up to 2: upgrade the operator"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckFormats("the operator", tc.bodies, tc.ref)
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, ErrNewer) || !errors.Is(err, ErrUnreadable) || err.Error() != tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// stored is a snapshot as a build stored it.
type stored struct {
	Reference *v1alpha1.SnapshotReference
	Bodies    struct{ Request, Response, Metadata string }
}

// archive is a store with one snapshot, kept in a file.
type archive struct {
	Store
	file string
}

func (a archive) Name() string { return v1alpha1.SnapshotStoreBlob }

func (a archive) Read(context.Context, types.NamespacedName, string, int, int64) (io.Reader, error) {
	data, err := os.ReadFile(a.file)
	return bytes.NewReader(data), err
}

// TestStoredFormats: snapshots stored by earlier builds stay readable. testdata/formats has one of each format, with its
// reference and its content. Never rewrite these files: add another for a new format.
func TestStoredFormats(t *testing.T) {
	files, err := filepath.Glob("testdata/formats/*.json")
	if err != nil || len(files) != v1alpha1.MaxSnapshotFormat {
		t.Fatalf("%d files and error %v, want one for each of %d formats", len(files), err, v1alpha1.MaxSnapshotFormat)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want stored
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			bodies, err := Stores{archive{file: file[:len(file)-len("json")] + "zst"}}.Read(t.Context(), session, want.Reference)
			if err != nil {
				t.Fatal(err)
			}
			got := want
			got.Bodies.Request, got.Bodies.Response, got.Bodies.Metadata = string(bodies.Request), string(bodies.Response), string(bodies.Metadata)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("bodies (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewerParts: this build neither lists nor deletes parts in a format that only a newer build supports.
func TestNewerParts(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = bucket.Close() })
	store := NewBlobStore(bucket, identity("one"))
	if err := store.Claim(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	key := newKey()
	names := []string{
		blobName(session, "f2."+key), blobName(session, "f2."+key) + markInfix + "2026-01-01T00:00:00Z", blobName(session, "f2."+key) + "/0",
	}
	for _, name := range names {
		if err := bucket.WriteAll(t.Context(), name, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{key + "-0": true, "f2." + key + "-0": false, key + "-0-f2": false} {
		if _, ok := chunkPart(&metav1.ObjectMeta{Name: name}); ok != want {
			t.Errorf("chunk %s is a part: %t, want %t", name, ok, want)
		}
	}
	if parts := list(t, store); len(parts) > 0 {
		t.Errorf("listed %v", parts)
	}
	for _, key := range []string{key, "f2." + key} {
		ref := &v1alpha1.SnapshotReference{Store: store.Name(), Key: key, Parts: 1, Format: 2}
		if err := (Stores{store}).Delete(t.Context(), session, ref, nil); err != nil {
			t.Error(err)
		}
	}
	for _, name := range names {
		if exists, err := bucket.Exists(t.Context(), name); err != nil || !exists {
			t.Errorf("%s is gone, error %v", name, err)
		}
	}
}
