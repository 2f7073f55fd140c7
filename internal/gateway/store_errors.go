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
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/store"
)

// resolveError returns the client's error if resolving the conversation of previous fails.
func resolveError(previous string, err error) *apiError {
	if e, ok := errors.AsType[*store.Error](err); ok && e.Code == store.CodeNotFound && e.ResponseID == previous {
		return invalidRequest("previous_response_id", "previous_response_not_found", "Previous response with id '%s' not found.", previous)
	}
	return storeError(err)
}

// getError returns the client's error if reading a turn fails.
func getError(id string, err error) *apiError {
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	return storeError(err)
}

// storeError returns the client's error for an error of the store, unless the requested turn itself does not exist.
//
// If the client can only help itself by sending another request, the status is 400, as OpenAI's own API answers for an
// unknown parent. A parent that may still complete is 409, which OpenAI's SDKs retry; one that cannot is 400, because a
// retry is useless.
func storeError(err error) *apiError {
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		return serverError(http.StatusInternalServerError, "internal_error", "The store failed.", err)
	}
	result := serverError(http.StatusInternalServerError, string(e.Code), "", nil)
	switch e.Code {
	case store.CodeNotFound:
		result = chainError(e, "The conversation is broken: response with id '%s', an earlier turn of it, does not exist.")
	case store.CodeCycleDetected:
		result = chainError(e, "The conversation is broken: it leads back to response with id '%s'.")
	case store.CodeDepthExceeded:
		result = chainError(e, "The conversation has too many turns: the limit is exceeded at response with id '%s'.")
	case store.CodeTooLarge:
		result = chainError(e, "The conversation is too large to be continued.")
	case store.CodeInvalid:
		result = chainError(e, "The previous response cannot be used.")
	case store.CodeUnavailable:
		result = chainError(e, "Response with id '%s' is not completed and cannot be used as context.")
		if e.Retryable {
			result.status = http.StatusConflict
		}
	case store.CodeUnreadable:
		result.message, result.retry = fmt.Sprintf("The stored response with id '%s' cannot be read.", e.ResponseID), retryNever
	case store.CodeUnreachable:
		result.status, result.message, result.retry = http.StatusServiceUnavailable, "The store cannot be reached.", retryLater
	default:
		result.message = "The store failed."
	}
	result.err = err
	return result
}

// chainError returns the error for a conversation that cannot be continued. %s in the message stands for the ID of the
// turn at which it fails.
func chainError(e *store.Error, message string) *apiError {
	return &apiError{
		status: http.StatusBadRequest, kind: typeInvalidRequest, param: "previous_response_id", code: string(e.Code),
		message: strings.ReplaceAll(message, "%s", e.ResponseID),
	}
}

// saveError returns the error for a turn that could not be saved. It is always a server error: the client did nothing
// wrong.
func saveError(err error) *apiError {
	result := serverError(http.StatusInternalServerError, "internal_error", "The response could not be stored.", err)
	if e, ok := errors.AsType[*store.Error](err); ok {
		result.code = string(e.Code)
	}
	switch {
	case errors.Is(err, store.ErrInvalid):
		// The request has been checked, so it is the response that cannot be stored.
		return upstreamInvalid(err)
	case errors.Is(err, store.ErrTooLarge):
		result.message, result.retry = "The turn is too large to be stored.", retryNever
	case store.IsRetryable(err):
		result.status, result.retry = http.StatusServiceUnavailable, retryLater
	}
	return result
}
