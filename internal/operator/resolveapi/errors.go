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
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

// retryAfterSeconds is the delay after which to retry a request that failed temporarily.
const retryAfterSeconds = 1

// maxAnswerTime is how long before a request's deadline the wait for the kube-apiserver ends, at most.
const maxAnswerTime = 500 * time.Millisecond

// beforeDeadline returns a context that is done shortly before ctx, so that there is time for an answer. At the deadline itself
// k8s.io/apiserver ends the request with an object that is not a valid Status or, if the answer has begun, in the middle of it.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/4, maxAnswerTime)))
}

// badRequest is the error of an invalid request. Its message describes what the caller must change.
type badRequest string

// Error returns the message, for the caller.
func (e badRequest) Error() string { return string(e) }

// toStatus returns the Status that answers a failed request for an object of a resource, and a code for metrics: the code of the
// chain's error, or the reason of the Status. Errors of the caller are returned in full, others only as far as the caller can
// act on them.
func toStatus(ctx context.Context, resource, name string, err error) (*apierrors.StatusError, string) {
	var chainError *chain.Error
	var badRequest badRequest
	var throttled *resolve.ThrottledError
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &chainError):
		return codeStatus(resource, name, chainError.Rule.HTTPStatus(), chainError.Rule.Retryable(), metav1.StatusCause{
			Type: metav1.CauseType(chainError.Code()), Message: chainError.Error(), Field: chainError.ResponseID,
		})
	case errors.Is(err, resolve.ErrNoConversation):
		return codeStatus(resource, name, http.StatusNotFound, false, metav1.StatusCause{
			Type: metav1.CauseType(driver.CodeConversationNotFound), Message: fmt.Sprintf("conversation %q does not exist", name), Field: name,
		})
	case errors.As(err, &badRequest):
		status = apierrors.NewBadRequest(badRequest.Error())
	case errors.Is(err, resolve.ErrTooLarge):
		status = apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.Is(err, resolve.ErrBusy):
		status = busy(err)
	case errors.As(err, &throttled):
		status = apierrors.NewTooManyRequests(err.Error(), int(math.Ceil(throttled.RetryAfter.Seconds())))
	case errors.Is(err, snapshot.ErrNotConfigured):
		status = withoutRepeat(newUnavailable("a turn is in a bucket, and this operator is not configured with one: set --snapshot-store"))
	case errors.Is(ctx.Err(), context.Canceled):
		return newTimeout("the request was canceled"), driver.ResultCanceled
	default:
		status = withoutRepeat(readStatus(err))
	}
	return status, string(status.ErrStatus.Reason)
}

// busy returns the answer to a request that exceeds its namespace's share.
func busy(err error) *apierrors.StatusError {
	return apierrors.NewTooManyRequests(err.Error(), retryAfterSeconds)
}

// statusReasons are the Kubernetes reasons for the HTTP statuses of errors with a code.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
}

// codeStatus returns a Status with a code, which is the type of its cause, and the code.
func codeStatus(resource, name string, httpStatus int, retryable bool, cause metav1.StatusCause) (*apierrors.StatusError, string) {
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(httpStatus),
		Reason:  statusReasons[httpStatus],
		Message: cause.Message,
		Details: &metav1.StatusDetails{
			Name: name, Group: resolvev1alpha1.GroupVersion.Group, Kind: resource, Causes: []metav1.StatusCause{cause},
		},
	}
	if retryable {
		status.Details.RetryAfterSeconds = retryAfterSeconds
	}
	return &apierrors.StatusError{ErrStatus: status}, string(cause.Type)
}

// readStatus is the answer if the sessions could not be read. It is never the kube-apiserver's own answer, which is meant
// for the operator and may contain anything.
func readStatus(err error) *apierrors.StatusError {
	reason := apierrors.ReasonForError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), isTimeout(err):
		return newTimeout("the kube-apiserver did not respond in time")
	case isUnreachable(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return newUnavailable("the kube-apiserver is unavailable")
	case reason != metav1.StatusReasonUnknown:
		return apierrors.NewInternalError(fmt.Errorf("the kube-apiserver rejected a read by the operator: %s", reason))
	}
	return apierrors.NewInternalError(errors.New("unable to read the sessions; see the log of the operator"))
}

// withoutRepeat returns the answer for a request that may have read a whole chain. Clients repeat requests at once if retryAfterSeconds
// is set, and an overloaded kube-apiserver would have to serve the reads again each time.
func withoutRepeat(status *apierrors.StatusError) *apierrors.StatusError {
	details := status.ErrStatus.Details
	if details == nil || details.RetryAfterSeconds == 0 {
		return status
	}
	details.RetryAfterSeconds = 0
	details.Causes = append(details.Causes, metav1.StatusCause{Type: resolvev1alpha1.CauseReadFailed, Message: status.ErrStatus.Message})
	return status
}

// isTimeout reports whether a connection timed out.
func isTimeout(err error) bool {
	var netError net.Error
	return errors.As(err, &netError) && netError.Timeout()
}

// isUnreachable reports whether there was no connection, or it broke. A shared read that another request canceled counts
// too.
func isUnreachable(err error) bool {
	var netError net.Error
	return errors.As(err, &netError) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || errors.Is(err, context.Canceled)
}

func newTimeout(message string) *apierrors.StatusError {
	return apierrors.NewTimeoutError(message, retryAfterSeconds)
}

func newUnavailable(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return err
}
