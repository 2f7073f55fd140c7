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

package kube_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// largeTurn is a turn of 1.8 MB, more than etcd accepts, with a number that a custom resource does not preserve. When
// compressed, it takes three chunks: a first, a middle and a last one.
func largeTurn(id, previous string) *store.Session {
	image := make([]byte, 900_000)
	_, _ = rand.NewChaCha8([32]byte{byte(len(id))}).Read(image) // never fails
	turn := testturn.Make(id, previous)
	turn.Request = fmt.Appendf(nil, `{ "model":"m", "input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%x"}],"n":12345678901234567890}] }`, image)
	turn.Response = []byte(`{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a cat"}],"f":1.0}]}`)
	return turn
}

// sameSession ignores the version, which changes when the controller writes a status, and compares bodies in one step: cmp
// compares byte by byte, which takes half a minute with the race detector.
var sameSession = cmp.Options{cmpopts.IgnoreFields(store.Session{}, "Version"), cmp.Comparer(bytes.Equal)}

func save(t *testing.T, s *store.Store, session *store.Session) {
	t.Helper()
	if err := s.Save(t.Context(), session, store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
}

func object(t *testing.T, namespace, id string) *v1alpha1.ResponseSession {
	t.Helper()
	object := &v1alpha1.ResponseSession{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// edit changes a session as a user does, regardless of concurrent writes by the controller.
func edit(t *testing.T, namespace, id, conversationID string) error {
	t.Helper()
	session := &v1alpha1.ResponseSession{}
	session.Namespace, session.Name = namespace, v1alpha1.ObjectName(id)
	patch := fmt.Appendf(nil, `{"spec":{"conversationID":%q}}`, conversationID)
	return env.Client.Patch(t.Context(), session, client.RawPatch(types.MergePatchType, patch))
}

// firstPart returns the error from reading the first chunk of a snapshot or, for a bucket, its object.
func firstPart(t *testing.T, namespace, id, key string) error {
	t.Helper()
	chunk := client.ObjectKey{Namespace: namespace, Name: v1alpha1.SnapshotChunkName(key, 0)}
	if err := env.Client.Get(t.Context(), chunk, &v1alpha1.SnapshotChunk{}); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	_, err := os.Stat(filepath.Join(bucketDir, namespace, v1alpha1.ObjectName(id), key))
	return err
}

// nothingStored returns an error if a namespace has chunks, or objects in the bucket.
func nothingStored(t *testing.T, namespace string) error {
	t.Helper()
	if left := testsession.Chunks(t, env.Client, namespace); len(left) > 0 {
		return fmt.Errorf("%d chunks are left", len(left))
	}
	return filepath.WalkDir(filepath.Join(bucketDir, namespace), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			return fmt.Errorf("%s is left in the bucket", path)
		}
		return nil
	})
}

// transport handles the requests of a client.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// openThrough opens the store of a namespace whose requests are handled by a function.
func openThrough(
	t *testing.T, namespace string, through func(next http.RoundTripper, r *http.Request) (*http.Response, error),
) *store.Store {
	t.Helper()
	return openWith(t, kube.Options{Namespace: namespace}, through)
}

// openWith is openThrough with options, whose configuration it sets.
func openWith(
	t *testing.T, options kube.Options, through func(next http.RoundTripper, r *http.Request) (*http.Response, error),
) *store.Store {
	t.Helper()
	options.Config = configThrough(through)
	s, err := kube.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// configThrough returns the configuration of a client whose requests are handled by a function.
func configThrough(through func(next http.RoundTripper, r *http.Request) (*http.Response, error)) *rest.Config {
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/readyz" { // a refusal is final only if the API server is ready
				return next.RoundTrip(r)
			}
			return through(next, r)
		})
	})
	return config
}

func answer(r *http.Request, code int) *http.Response {
	return &http.Response{StatusCode: code, Body: http.NoBody, Header: http.Header{}, Request: r}
}
