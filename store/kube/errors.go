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
	"strings"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/catena-dev/catena/store"
)

// notFound returns the error for a turn that does not exist, and the one that was asked to be resolved, if any.
func notFound(responseID, asked string) error {
	return &store.Error{
		Code: store.CodeNotFound, ResponseID: responseID, PreviousResponseID: asked,
		Message: fmt.Sprintf("response %q was not found", responseID),
	}
}

func conflict(session *store.Session, reason string, retryable bool) error {
	return &store.Error{
		Code: store.CodeConflict, ResponseID: session.ResponseID, Retryable: retryable,
		Message: fmt.Sprintf("response %q cannot be saved: %s", session.ResponseID, reason),
	}
}

// toError turns what an API server answered, or that it did not, into an error of package store where that has a code for
// it. Where the caller's context is done, it is the context's error.
func toError(ctx context.Context, responseID, message string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", message, errors.Join(ctx.Err(), err))
	}
	e := &store.Error{ResponseID: responseID, Message: message, Err: err}
	if fromChain(e, err) {
		return e
	}
	switch {
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		e.Code = store.CodeInvalid
	case apierrors.IsRequestEntityTooLargeError(err), isTooLargeForEtcd(err):
		e.Code = store.CodeTooLarge
	case isUnreachable(err):
		e.Code, e.Retryable = store.CodeUnreachable, true
	default:
		return fmt.Errorf("%s of response %q: %w", message, responseID, err)
	}
	return e
}

// fromChain fills in an error of the resolve API that has a code.
func fromChain(e *store.Error, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	details := status.Status().Details
	for _, cause := range details.Causes {
		switch code := store.Code(cause.Type); code {
		case store.CodeNotFound, store.CodeCycleDetected, store.CodeDepthExceeded, store.CodeUnavailable, store.CodeUnreadable:
			e.Code, e.PreviousResponseID, e.ResponseID = code, e.ResponseID, cause.Field
			e.Message, e.Err = cause.Message, nil
			e.Retryable = details.RetryAfterSeconds > 0
			return true
		}
	}
	return false
}

// isTooLargeForEtcd reports whether an API server could not store an object for its size, which it calls an internal error.
func isTooLargeForEtcd(err error) bool {
	text := err.Error()
	return strings.Contains(text, "etcdserver: request is too large") || strings.Contains(text, "trying to send message larger than max")
}

// isUnreachable reports whether an API server or S3 could not be asked, or could not answer: another attempt may succeed.
func isUnreachable(err error) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return isTransient(int(status.ErrStatus.Code))
	}
	if isTransient(s3Status(err)) {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	// The end of an answer did not come.
	if _, ok := errors.AsType[http2.StreamError](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var netError net.Error
	return errors.As(err, &netError) || utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsProbableEOF(err)
}

// s3Status returns the status of what S3 has answered, and 0 for any other error.
func s3Status(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// isTransient reports whether another attempt may meet another status.
func isTransient(code int) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}
