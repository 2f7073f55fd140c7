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
func storeError(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e // from call.hold
	}
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		return finalError("internal_error", "The store returned an unexpected error.", err)
	}
	if strings.HasPrefix(string(e.Code), chainCodes) {
		return conversationError(e, err)
	}
	switch e.Code {
	case store.CodeTooLarge:
		return previousError(e, "The conversation is too large to be continued.", err)
	case store.CodeInvalid:
		return previousError(e, "The previous response cannot be used.", err)
	case store.CodeUnreachable:
		return temporaryError(string(e.Code), "The store cannot be reached.", err)
	case store.CodeUnreadable:
		return finalError(string(e.Code), "The store cannot return the response: "+e.Message+".", err)
	}
	return finalError(string(e.Code), "The store returned an unexpected error.", err)
}

// chainCodes is the prefix of the codes of broken chains, including those that a newer operator may add.
const chainCodes = "session.chain."

// conversationError returns the error for a conversation whose chain is broken, with the sentence of the broken rule. The
// status is 400 if only another request can succeed, as in OpenAI's own API if the parent does not exist. If a turn may
// still complete, it is 409, which OpenAI's SDKs retry.
func conversationError(e *store.Error, err error) *apiError {
	message := "The conversation cannot be continued: " + e.Message + "."
	if e.Code == store.CodeDepthExceeded {
		message += " The gateway requests the maxDepth that its --max-depth flag sets."
	}
	result := previousError(e, message, err)
	if e.Retryable {
		result.status = http.StatusConflict
	}
	return result
}

// previousError returns the error for a request whose previous response cannot be continued.
func previousError(e *store.Error, message string, err error) *apiError {
	result := invalidRequest("previous_response_id", string(e.Code), "%s", message)
	result.err = err
	return result
}

// saveError returns the error for a turn that could not be saved. It is a server error, because the client did nothing wrong,
// unless its tenant has used up its quota.
func saveError(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e // from call.hold
	}
	code := "internal_error"
	if e, ok := errors.AsType[*store.Error](err); ok {
		code = string(e.Code)
	}
	switch {
	case errors.Is(err, store.ErrInvalid):
		// The request has been checked, so it is the response that cannot be stored.
		return upstreamInvalid(err)
	case errors.Is(err, store.ErrQuotaExceeded):
		return quotaError(err)
	case errors.Is(err, store.ErrTooLarge):
		return finalError(code, "The turn is too large to be stored.", err)
	case store.IsRetryable(err):
		return temporaryError(code, "The response could not be stored.", err)
	}
	return finalError(code, "The response could not be stored.", err)
}

// quotaError returns the error of a tenant that has used up its quota.
func quotaError(err error) *apiError {
	e := finalError(string(store.CodeQuotaExceeded), "You have reached your storage quota. Delete responses, or request a higher quota.", err)
	e.status, e.kind = http.StatusTooManyRequests, typeQuota // as in OpenAI's API
	return e
}
