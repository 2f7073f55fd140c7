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
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestOverwriteAgain: an overwrite whose response was lost does not undo a later overwrite.
func TestOverwriteAgain(t *testing.T) {
	others := open(t, kube.Options{})
	save(t, others, testturn.Make("resp_1", ""))
	var lost atomic.Bool
	s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPatch || lost.Swap(true) {
			return response, err
		}
		_ = response.Body.Close()
		newest, err := others.Get(t.Context(), "resp_1")
		if err != nil {
			return nil, err
		}
		newest.ConversationID = "newest"
		return nil, errors.Join(io.ErrUnexpectedEOF, others.Save(t.Context(), newest, store.SaveOptions{Overwrite: true}))
	})
	mine := testturn.Make("resp_1", "")
	mine.ConversationID = "mine"
	if err := s.Save(t.Context(), mine, store.SaveOptions{Overwrite: true}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got, err := others.Get(t.Context(), "resp_1"); err != nil || got.ConversationID != "newest" {
		t.Errorf("got %+v and %v, want the newest", got, err)
	}
}

// TestOverwriteResponseLost: an overwrite that was stored succeeds, even if the response is lost in a proxy and client-go
// sends the request again.
func TestOverwriteResponseLost(t *testing.T) {
	others := open(t, kube.Options{})
	save(t, others, testturn.Make("resp_1", ""))
	var lost atomic.Bool
	s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPatch || lost.Swap(true) {
			return response, err
		}
		return retryLater(r), response.Body.Close()
	})
	mine := testturn.Make("resp_1", "")
	mine.ConversationID = "mine"
	if err := s.Save(t.Context(), mine, store.SaveOptions{Overwrite: true}); err != nil {
		t.Error(err)
	}
	if got, err := others.Get(t.Context(), "resp_1"); err != nil || got.ConversationID != "mine" {
		t.Errorf("got %+v and %v, want mine", got, err)
	}
	mine.ConversationID = "again" // with its current version
	if err := s.Save(t.Context(), mine, store.SaveOptions{Overwrite: true}); err != nil {
		t.Error(err)
	}
}

// retryLater returns a response after which client-go itself repeats a request.
func retryLater(r *http.Request) *http.Response {
	response := answer(r, http.StatusServiceUnavailable)
	response.Header.Set("Retry-After", "0")
	return response
}

// TestChunkResponseLost: a save succeeds even if the response to the creation of a chunk is lost, the first one or another.
func TestChunkResponseLost(t *testing.T) {
	for _, part := range []int32{1, 3} {
		namespace := open(t, kube.Options{}).Namespace()
		var posted atomic.Int32
		s := openThrough(t, namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Method != http.MethodPost || posted.Add(1) != part {
				return response, err
			}
			return retryLater(r), response.Body.Close()
		})
		save(t, s, largeTurn("resp_1", ""))
		if _, err := s.Get(t.Context(), "resp_1"); err != nil {
			t.Error(err)
		}
	}
}

// TestDeletedAfterLostResponse: a create whose response was lost is repeated with a new snapshot if the turn and its
// snapshot have been deleted in the meantime.
func TestDeletedAfterLostResponse(t *testing.T) {
	for name, attempt := range map[string]store.SaveOptions{"create": {}, "overwrite of a missing turn": {Overwrite: true}} {
		t.Run(name, func(t *testing.T) {
			others := open(t, kube.Options{})
			var lost atomic.Bool
			s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responsesessions") || lost.Swap(true) {
					return response, err
				}
				_ = response.Body.Close()
				return nil, errors.Join(io.ErrUnexpectedEOF, others.Delete(t.Context(), "resp_1", store.DeleteOptions{}))
			})
			if err := s.Save(t.Context(), largeTurn("resp_1", ""), attempt); err != nil {
				t.Fatal(err)
			}
			parts := int(object(t, others.Namespace(), "resp_1").Spec.Snapshot.Parts)
			// Garbage collection may not have finished with the first one.
			testutil.Eventually(t, func(context.Context) error { return wantChunks(t, name, others, parts) })
			if _, err := others.Get(t.Context(), "resp_1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSnapshotInUse: a rejected save keeps its snapshot if its first attempt had succeeded and the turn has been edited since.
func TestSnapshotInUse(t *testing.T) {
	others := open(t, kube.Options{})
	s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responsesessions") || response.StatusCode != http.StatusCreated {
			return response, err
		}
		_ = response.Body.Close()
		return nil, errors.Join(io.ErrUnexpectedEOF, edit(t, others.Namespace(), "resp_1", "edited"))
	})
	if err := s.Save(t.Context(), largeTurn("resp_1", ""), store.SaveOptions{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got, err := others.Get(t.Context(), "resp_1"); err != nil || got.ConversationID != "edited" {
		t.Errorf("the turn cannot be read: %v", err)
	}
}
