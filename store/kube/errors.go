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

package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

// again marks an error for another attempt if the server could not be reached or did not respond, or if the turn is about to
// be removed. Responses with a Retry-After header and responses of S3 are excluded: client-go has already repeated the former
// up to ten times, and the S3 client the latter three times.
func again(err error) error {
	if !driver.IsRetryable(err) || !errors.Is(err, driver.ErrUnreachable) && !errors.Is(err, driver.ErrConflict) {
		return err
	}
	if _, retried := apierrors.SuggestsClientDelay(err); retried || s3Status(err) != 0 {
		return err
	}
	return driver.Again(err)
}

// toError converts the error of a request to an API server or a bucket. Once the caller's context is done, it returns the
// context's error. step names the failed step if it is not the whole operation.
func toError(ctx context.Context, responseID, step string, err error) error {
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	cause := err
	if step != "" {
		cause = fmt.Errorf("unable to %s: %w", step, err)
	}
	if ctx.Err() != nil {
		return cause
	}
	e := &driver.Error{ResponseID: responseID, Err: cause}
	if fromChain(e, err) {
		return e
	}
	switch {
	case kubeclient.IsUnknownField(err):
		e.Code, e.Message = driver.CodeUnsupported, "the CRDs of the cluster are older than this program: apply newer ones"
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		e.Code = driver.CodeInvalid
	case apierrors.IsRequestEntityTooLargeError(err), kubeclient.IsTooLargeForEtcd(err):
		e.Code = driver.CodeTooLarge
	case isQuotaExceeded(err):
		e.Code, e.Message = driver.CodeQuotaExceeded, quotaMessage(responseID)
	case isUnreachable(err):
		e.Code, e.Retryable = driver.CodeUnreachable, true
	case errors.Is(err, kubeclient.ErrUndecodable):
		e.Code = driver.CodeUnreadable
	default:
		return cause
	}
	return e
}

// fromChain fills in a resolve API error that has a code.
func fromChain(e *driver.Error, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	details := status.Status().Details
	for _, cause := range details.Causes {
		if code := driver.Code(cause.Type); slices.Contains(driver.Codes(), code) {
			e.Code, e.PreviousResponseID, e.ResponseID = code, e.ResponseID, cause.Field
			e.Message, e.Err = cause.Message, nil
			e.Retryable = details.RetryAfterSeconds > 0
			return true
		}
	}
	return false
}

// isGone reports whether err indicates that a turn does not exist.
func isGone(err error, namespace, responseID string) bool {
	return kubeclient.IsGone(err, kubeclient.Sessions, objectName(namespace, responseID).Name)
}

// isUnreachable reports whether an API server or S3 could not be reached or could not respond, so that another attempt may
// succeed.
func isUnreachable(err error) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		// A token can be replaced, and that of a Pod is no longer valid once the Pod is deleted, although its processes still run: another
		// attempt, or another process, may have a valid one.
		return isTransient(int(status.ErrStatus.Code)) || apierrors.IsUnauthorized(err)
	}
	if isTransient(s3Status(err)) || errors.Is(err, snapshot.ErrUnclaimed) {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	// The response was cut off.
	if _, ok := errors.AsType[http2.StreamError](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var netError net.Error
	return errors.As(err, &netError) || utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err)
}

// mayHaveSucceeded reports whether a write may have taken effect despite its error.
func mayHaveSucceeded(err error) bool {
	return !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err)
}

// s3Status returns the status of an S3 response, or 0 for any other error.
func s3Status(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// isTransient reports whether another attempt may return a different status.
func isTransient(code int) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}
