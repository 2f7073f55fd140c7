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

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// OpenAI's types of errors.
const (
	typeInvalidRequest = "invalid_request_error"
	typeServer         = "server_error"
	typeQuota          = "insufficient_quota"
	typeRequests       = "requests" // too many of them
)

// statusClientClosedRequest is the status in logs and metrics of a request whose client disconnected. It is never sent.
const statusClientClosedRequest = 499

// The causes with which a request's context is canceled, besides context.Canceled if the client disconnects.
var (
	errTimeout      = errors.New("the request took longer than the request timeout")
	errShuttingDown = errors.New("the gateway is shutting down")
)

// apiError is an error that is returned to the client.
type apiError struct {
	status                     int
	message, kind, param, code string
	retry                      retryAdvice
	// err is the cause, or nil. It is logged but not sent.
	err error
}

// retryAdvice indicates whether the client should retry. OpenAI's SDKs retry after 409 and 5xx unless a header forbids it.
type retryAdvice int

const (
	retryAsUsual retryAdvice = iota
	retryLater
	retryNever
)

// Error returns the message.
func (e *apiError) Error() string { return e.message }

// Unwrap returns the cause.
func (e *apiError) Unwrap() error { return e.err }

// write responds with the error.
func (e *apiError) write(w http.ResponseWriter) {
	switch e.retry {
	case retryLater:
		w.Header().Set("Retry-After", "1")
	case retryNever:
		w.Header().Set("X-Should-Retry", "false")
	}
	writeJSON(w, e.status, `{"error":`+e.object()+"}")
}

// object returns the error in OpenAI's JSON format.
func (e *apiError) object() string {
	return fmt.Sprintf(`{"message":%s,"type":%s,"param":%s,"code":%s}`, quote(e.message), quote(e.kind), quoteOrNull(e.param), quoteOrNull(e.code))
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // fails only if the client has disconnected
}

func invalidRequest(param, code, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: typeInvalidRequest, param: param, code: code, message: fmt.Sprintf(format, args...)}
}

func notFound(responseID string) *apiError {
	return &apiError{status: http.StatusNotFound, kind: typeInvalidRequest, message: fmt.Sprintf("Response with id '%s' not found.", responseID)}
}

func serverError(status int, code, message string, err error) *apiError {
	return &apiError{status: status, kind: typeServer, code: code, message: message, err: err}
}

// temporaryError returns the error for a failure that a retry may resolve.
func temporaryError(code, message string, err error) *apiError {
	e := serverError(http.StatusServiceUnavailable, code, message, err)
	e.retry = retryLater
	return e
}

// finalError returns the error for a failure that a retry would only repeat, such as missing permissions or an exceeded quota.
// A retry after the engine was called would also run the model again.
func finalError(code, message string, err error) *apiError {
	e := serverError(http.StatusInternalServerError, code, message, err)
	e.retry = retryNever
	return e
}

// interrupted returns the reason why a context is done as an error for the client, or nil if it is not done.
func interrupted(ctx context.Context) *apiError {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return nil
	case errors.Is(cause, errTimeout):
		return serverError(http.StatusGatewayTimeout, "timeout", "The request took too long.", cause)
	case placeLost(cause) != nil:
		return placeLost(cause)
	case errors.Is(cause, errShuttingDown):
		return temporaryError("shutting_down", "The gateway is shutting down.", cause)
	default:
		return &apiError{status: statusClientClosedRequest, kind: typeInvalidRequest, message: "The client closed the request.", err: cause}
	}
}
