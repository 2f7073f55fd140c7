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

package kubeclient

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestClosedConnection: a GET is sent again if its connection is closed before the response, but not more often than permitted.
func TestClosedConnection(t *testing.T) {
	name := types.NamespacedName{Namespace: "a", Name: "b"}
	for what, tc := range map[string]struct {
		closed  int32 // that many connections
		retries int
		wantErr bool
	}{
		"once":                {1, 1, false},
		"more often":          {2, 1, true},
		"no further attempts": {1, 0, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			requests := atomic.Int32{}
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1) <= tc.closed {
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write([]byte("{}"))
			})
			body, err := Read(t.Context(), GetAt(client, Sessions, name, ""), tc.retries)
			if tc.wantErr != (err != nil) || !tc.wantErr && string(body) != "{}" {
				t.Errorf("got %q and %v, want an error: %t", body, err, tc.wantErr)
			}
			if got, want := requests.Load(), min(tc.closed, int32(tc.retries))+1; got != want {
				t.Errorf("sent %d requests, want %d", got, want)
			}
		})
	}
}

// TestReadInto: what another response has left in the buffer is gone.
func TestReadInto(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	into := bytes.NewBufferString("of another object")
	if err := ReadInto(t.Context(), GetAt(client, Sessions, types.NamespacedName{Namespace: "a", Name: "b"}, ""), into); err != nil {
		t.Fatal(err)
	}
	if got := into.String(); got != "{}" {
		t.Errorf("got %q", got)
	}
}

// TestDeleteIsNotRepeated: nothing is known about an object whose deletion was not answered.
func TestDeleteIsNotRepeated(t *testing.T) {
	requests := atomic.Int32{}
	client := serve(t, func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	})
	_, err := Delete(t.Context(), client, Sessions, types.NamespacedName{Namespace: "a", Name: "b"}, nil, "")
	if err == nil || requests.Load() != 1 {
		t.Errorf("got %v after %d requests, want an error after 1", err, requests.Load())
	}
}
