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

package buckets

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"gocloud.dev/blob"
)

// TestGoogle checks what Google Cloud Storage rejects: a signed Accept-Encoding, and bodies in chunks with a checksum.
func TestGoogle(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "GOOGTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	objects := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		if !strings.Contains(authorization, "/auto/s3/aws4_request") || strings.Contains(authorization, "accept-encoding") {
			t.Errorf("%s %s is signed with %q, want it for the region auto and without Accept-Encoding", r.Method, r.URL, authorization)
		}
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("%s %s accepts encoding %q, want identity", r.Method, r.URL, got)
		}
		switch r.Method {
		case http.MethodPut:
			if got := r.Header.Get("Content-Encoding"); got != "" {
				t.Errorf("PUT %s has the encoding %q", r.URL, got)
			}
			objects[r.URL.Path], _ = io.ReadAll(r.Body)
		case http.MethodGet:
			_, _ = w.Write(objects[r.URL.Path])
		}
	}))
	defer server.Close()

	bucket, err := blob.OpenBucket(t.Context(), "gs://snapshots?prefix=a/&endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bucket.Close() }()
	if err := bucket.WriteAll(t.Context(), "key", []byte("hello"), nil); err != nil {
		t.Fatal(err)
	}
	got, err := bucket.ReadAll(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "hello" || string(objects["/snapshots/a/key"]) != "hello" {
		t.Errorf("read %q and stored %q, want hello under /snapshots/a/key", got, objects)
	}
}

func TestGoogleUnknownParameter(t *testing.T) {
	_, err := blob.OpenBucket(t.Context(), "gs://snapshots?access_id=x")
	if err == nil || !strings.Contains(err.Error(), "access_id") {
		t.Errorf("got %v, want an error that names the parameter", err)
	}
}
