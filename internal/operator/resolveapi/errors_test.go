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

package resolveapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/testutil/golden"
	"github.com/catena-dev/catena/store/driver"
)

func TestToStatus(t *testing.T) {
	type summary struct {
		HTTP       int32
		Reason     metav1.StatusReason
		Code       string
		Field      string
		RetryAfter int32
	}
	sessions := schema.GroupResource{Group: "sessions.catena.dev", Resource: "responsesessions"}
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1/secret", Err: syscall.ECONNREFUSED}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx  context.Context
		err  error
		want summary
	}{
		"not found": {
			err:  &chain.Error{Rule: chain.NotFound, ResponseID: "resp_3", PreviousResponseID: "resp_3"},
			want: summary{404, metav1.StatusReasonNotFound, "session.chain.not_found", "resp_3", 0},
		},
		"ancestor not found": {
			err:  fmt.Errorf("walk: %w", &chain.Error{Rule: chain.ParentNotFound, ResponseID: "resp_1", PreviousResponseID: "resp_3"}),
			want: summary{422, metav1.StatusReasonInvalid, "session.chain.not_found", "resp_1", 0},
		},
		"cycle": {
			err:  &chain.Error{Rule: chain.CycleDetected, ResponseID: "resp_1", PreviousResponseID: "resp_3"},
			want: summary{422, metav1.StatusReasonInvalid, "session.chain.cycle_detected", "resp_1", 0},
		},
		"too deep": {
			err:  &chain.Error{Rule: chain.DepthExceeded, ResponseID: "resp_1", PreviousResponseID: "resp_3", MaxDepth: 2},
			want: summary{422, metav1.StatusReasonInvalid, "session.chain.depth_exceeded", "resp_1", 0},
		},
		"unreadable": {
			err:  &chain.Error{Rule: chain.SnapshotUnreadable, ResponseID: "resp_1", PreviousResponseID: "resp_3"},
			want: summary{422, metav1.StatusReasonInvalid, "session.snapshot.unreadable", "resp_1", 0},
		},
		"not completed": {
			err:  &chain.Error{Rule: chain.TurnNotCompleted, ResponseID: "resp_1", PreviousResponseID: "resp_3", Status: "failed"},
			want: summary{409, metav1.StatusReasonConflict, "session.chain.unavailable", "resp_1", 0},
		},
		"pending": {
			err:  &chain.Error{Rule: chain.TurnPending, ResponseID: "resp_1", PreviousResponseID: "resp_3", Status: "queued"},
			want: summary{409, metav1.StatusReasonConflict, "session.chain.unavailable", "resp_1", 1},
		},
		"bad request": {
			err:  badRequest("no"),
			want: summary{400, metav1.StatusReasonBadRequest, "BadRequest", "", 0},
		},
		"throttled": {
			err:  fmt.Errorf("resolve: %w", &resolve.ThrottledError{RetryAfter: 1200 * time.Millisecond}),
			want: summary{429, metav1.StatusReasonTooManyRequests, "TooManyRequests", "", 2},
		},
		"deadline": {
			err:  fmt.Errorf("get: %w", context.DeadlineExceeded),
			want: summary{504, metav1.StatusReasonTimeout, "Timeout", "", 0},
		},
		"kube-apiserver: timeout": {
			err:  fmt.Errorf("get: %w", apierrors.NewTimeoutError("secret", 10)),
			want: summary{504, metav1.StatusReasonTimeout, "Timeout", "", 0},
		},
		"kube-apiserver: server timeout": {
			err:  apierrors.NewServerTimeout(sessions, "get", 10),
			want: summary{504, metav1.StatusReasonTimeout, "Timeout", "", 0},
		},
		"kube-apiserver: unreachable": {
			err:  fmt.Errorf("get: %w", refused),
			want: summary{503, metav1.StatusReasonServiceUnavailable, "ServiceUnavailable", "", 0},
		},
		"kube-apiserver: unavailable": {
			err:  apierrors.NewServiceUnavailable("secret"),
			want: summary{503, metav1.StatusReasonServiceUnavailable, "ServiceUnavailable", "", 0},
		},
		"kube-apiserver: too many requests": {
			err:  apierrors.NewTooManyRequests("secret", 3),
			want: summary{503, metav1.StatusReasonServiceUnavailable, "ServiceUnavailable", "", 0},
		},
		"kube-apiserver: forbidden": {
			err:  apierrors.NewForbidden(sessions, "x", errors.New("secret")),
			want: summary{500, metav1.StatusReasonInternalError, "InternalError", "", 0},
		},
		"shared read canceled by another request": {
			err:  context.Canceled,
			want: summary{503, metav1.StatusReasonServiceUnavailable, "ServiceUnavailable", "", 0},
		},
		"canceled by the caller": {
			ctx:  canceled,
			err:  context.Canceled,
			want: summary{504, metav1.StatusReasonTimeout, "canceled", "", 1},
		},
		"other error": {
			err:  errors.New("secret"),
			want: summary{500, metav1.StatusReasonInternalError, "InternalError", "", 0},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.ctx == nil {
				tc.ctx = t.Context()
			}
			err, code := toStatus(tc.ctx, "inputitems", "resp.3", tc.err)
			status := err.ErrStatus
			got := summary{HTTP: status.Code, Reason: status.Reason, Code: code}
			if status.Details != nil {
				got.RetryAfter = status.Details.RetryAfterSeconds
			}
			readFailed, want := apierrors.HasStatusCause(err, resolvev1alpha1.CauseReadFailed), tc.want.HTTP > 500 && code != driver.ResultCanceled
			if readFailed != want {
				t.Errorf("cause ReadFailed: %t, want %t", readFailed, want)
			}
			if strings.HasPrefix(code, "session.") {
				want := &metav1.StatusDetails{Name: "resp.3", Group: "resolve.catena.dev", Kind: "inputitems", RetryAfterSeconds: tc.want.RetryAfter,
					Causes: []metav1.StatusCause{{Type: metav1.CauseType(code), Field: tc.want.Field, Message: status.Message}}}
				if diff := cmp.Diff(want, status.Details); diff != "" {
					t.Errorf("Unexpected details (-want,+got):\n%s", diff)
				}
				got.Field = status.Details.Causes[0].Field
				body, err := json.MarshalIndent(status, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				golden.Check(t, "status "+name, string(body)+"\n")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Unexpected status (-want,+got):\n%s", diff)
			}
			if status.Status != metav1.StatusFailure || status.Message == "" || strings.Contains(status.Message, "secret") {
				t.Errorf("Unexpected message in %+v", status)
			}
		})
	}
}
