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
	"strings"

	"github.com/catena-dev/catena/store"
)

// The types of errors, as OpenAI has them.
const (
	typeInvalidRequest = "invalid_request_error"
	typeServer         = "server_error"
)

// The causes that end a request's context. That the client went away is context.Canceled.
var (
	errTimeout      = errors.New("the time for the request is over")
	errShuttingDown = errors.New("the gateway is shutting down")
)

// apiError is an error as the client sees it.
type apiError struct {
	status                     int
	message, kind, param, code string
	// retry is what the client is told about trying again: OpenAI's SDKs try again by themselves after 409 and 5xx,
	// unless they are told not to.
	retry retryAdvice
	// err is the cause, for the log only, or nil.
	err error
}

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

// write answers with the error.
func (e *apiError) write(w http.ResponseWriter) {
	switch e.retry {
	case retryLater:
		w.Header().Set("Retry-After", "1")
	case retryNever:
		w.Header().Set("X-Should-Retry", "false")
	}
	writeJSON(w, e.status, `{"error":`+e.object()+"}")
}

// object returns the error as OpenAI's JSON object.
func (e *apiError) object() string {
	return fmt.Sprintf(`{"message":%s,"type":%s,"param":%s,"code":%s}`, quote(e.message), quote(e.kind), quoteOrNull(e.param), quoteOrNull(e.code))
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// Where the client has gone away there is nobody left to tell.
	_, _ = io.WriteString(w, body)
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

// interrupted returns the error for a context that is done, and nil for one that is not.
func interrupted(ctx context.Context) *apiError {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return nil
	case errors.Is(cause, errTimeout):
		return serverError(http.StatusGatewayTimeout, "timeout", "The request took too long.", cause)
	case errors.Is(cause, errShuttingDown):
		e := serverError(http.StatusServiceUnavailable, "shutting_down", "The gateway is shutting down.", cause)
		e.retry = retryLater
		return e
	default:
		return &apiError{status: statusClientClosedRequest, kind: typeInvalidRequest, message: "The client closed the request.", err: cause}
	}
}

// statusClientClosedRequest is the status in logs and metrics of a request whose client went away. Nobody sees it.
const statusClientClosedRequest = 499

// storeError returns the error for one of the store, other than a turn that does not exist.
//
// What a client can only mend by sending something else is 400, as OpenAI's own API answers for an unknown parent. A
// parent that may yet complete is 409, which OpenAI's SDKs try again after a moment; one that cannot is 400, as trying
// again is of no use.
func storeError(err error) *apiError {
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		return serverError(http.StatusInternalServerError, "internal_error", "The store failed.", err)
	}
	answer := serverError(http.StatusInternalServerError, string(e.Code), "", err)
	switch e.Code {
	case store.CodeNotFound:
		answer = chainError(e, "The conversation is broken: response with id '%s', an earlier turn of it, does not exist.")
	case store.CodeCycleDetected:
		answer = chainError(e, "The conversation is broken: it leads back to response with id '%s'.")
	case store.CodeDepthExceeded:
		answer = chainError(e, "The conversation has too many turns: the limit is passed at response with id '%s'.")
	case store.CodeTooLarge:
		answer = chainError(e, "The conversation is too large to be continued.")
	case store.CodeInvalid:
		answer = chainError(e, "The previous response cannot be used.")
	case store.CodeUnavailable:
		answer = chainError(e, "Response with id '%s' is not completed and cannot be used as context.")
		if e.Retryable {
			answer.status = http.StatusConflict
		}
	case store.CodeUnreadable:
		answer.message, answer.retry = fmt.Sprintf("What is stored of response with id '%s' cannot be read.", e.ResponseID), retryNever
	case store.CodeUnreachable:
		answer.status, answer.message, answer.retry = http.StatusServiceUnavailable, "The store cannot be reached.", retryLater
	default:
		answer.message = "The store failed."
	}
	answer.err = err
	return answer
}

// chainError returns the error for a conversation that cannot be continued. The message has %s where the ID of the turn
// belongs at which it fails.
func chainError(e *store.Error, message string) *apiError {
	return &apiError{
		status: http.StatusBadRequest, kind: typeInvalidRequest, param: "previous_response_id", code: string(e.Code),
		message: strings.ReplaceAll(message, "%s", e.ResponseID),
	}
}

// saveError returns the error for a turn that could not be saved. It is always the server's: the client did nothing wrong.
func saveError(err error) *apiError {
	answer := serverError(http.StatusInternalServerError, "internal_error", "The response could not be stored.", err)
	if e, ok := errors.AsType[*store.Error](err); ok {
		answer.code = string(e.Code)
	}
	switch {
	case errors.Is(err, store.ErrInvalid):
		// The request was checked, so it is the response that cannot be stored.
		return upstreamInvalid(err)
	case errors.Is(err, store.ErrTooLarge):
		answer.message, answer.retry = "The turn is too large to be stored.", retryNever
	case store.IsRetryable(err):
		answer.status, answer.retry = http.StatusServiceUnavailable, retryLater
	}
	return answer
}

func upstreamInvalid(err error) *apiError {
	return serverError(http.StatusBadGateway, "upstream_invalid_response", "The upstream's answer is not a response.", err)
}
