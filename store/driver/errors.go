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

package driver

import (
	"errors"
	"fmt"

	"github.com/catena-dev/catena/internal/chain"
)

// Code is the machine-readable code of an Error, as in responses of the resolve API.
type Code string

// The codes of errors. Those of broken chains are the resolve API's. Package store documents them.
const (
	CodeNotFound      = Code(chain.CodeNotFound)      // "session.chain.not_found"
	CodeCycleDetected = Code(chain.CodeCycleDetected) // "session.chain.cycle_detected"
	CodeDepthExceeded = Code(chain.CodeDepthExceeded) // "session.chain.depth_exceeded"
	CodeUnavailable   = Code(chain.CodeUnavailable)   // "session.chain.unavailable"
	CodeUnreadable    = Code(chain.CodeUnreadable)    // "session.snapshot.unreadable"
	CodeTooLarge      = Code("session.snapshot.too_large")
	CodeConflict      = Code("session.store.conflict")
	CodeInvalid       = Code("session.store.invalid")
	CodeUnreachable   = Code("session.store.unreachable")
	CodeQuotaExceeded = Code("session.store.quota_exceeded")
	CodeUnsupported   = Code("session.store.unsupported")

	CodeConversationNotFound = Code("session.conversation.not_found")
	CodeConversationLocked   = Code("session.conversation.locked")
	CodeConversationArchived = Code("session.conversation.archived")

	CodeConversationLimitExceeded = Code("session.conversation.limit_exceeded")
)

// Codes returns all codes.
func Codes() []Code {
	return []Code{
		CodeNotFound, CodeCycleDetected, CodeDepthExceeded, CodeUnavailable,
		CodeConflict, CodeInvalid, CodeUnreachable, CodeUnsupported, CodeQuotaExceeded,
		CodeUnreadable, CodeTooLarge,
		CodeConversationNotFound, CodeConversationLocked, CodeConversationArchived, CodeConversationLimitExceeded,
	}
}

// The values of the metric label "code" that are not error codes.
const (
	ResultOK       = "ok"       // success
	ResultCanceled = "canceled" // the caller canceled its context
)

// Errors to compare with errors.Is: each matches every *Error with its code.
var (
	ErrNotFound      error = &Error{Code: CodeNotFound}
	ErrCycleDetected error = &Error{Code: CodeCycleDetected}
	ErrDepthExceeded error = &Error{Code: CodeDepthExceeded}
	ErrUnavailable   error = &Error{Code: CodeUnavailable}
	ErrConflict      error = &Error{Code: CodeConflict}
	ErrInvalid       error = &Error{Code: CodeInvalid}
	ErrUnreachable   error = &Error{Code: CodeUnreachable}
	ErrUnsupported   error = &Error{Code: CodeUnsupported}
	ErrQuotaExceeded error = &Error{Code: CodeQuotaExceeded}
	ErrUnreadable    error = &Error{Code: CodeUnreadable}
	ErrTooLarge      error = &Error{Code: CodeTooLarge}

	ErrConversationNotFound error = &Error{Code: CodeConversationNotFound}
	ErrConversationLocked   error = &Error{Code: CodeConversationLocked}
	ErrConversationArchived error = &Error{Code: CodeConversationArchived}

	ErrConversationLimitExceeded error = &Error{Code: CodeConversationLimitExceeded}
)

// Error is a store's error if one of the codes applies. Get it with errors.AsType or errors.As.
type Error struct {
	Code Code
	// ResponseID is the turn at which the operation failed.
	ResponseID string
	// PreviousResponseID is the requested turn if its chain cannot be resolved.
	PreviousResponseID string
	// ConversationID is the conversation with which the operation failed, if it is one on a conversation.
	ConversationID string
	// Retryable indicates that the same call may succeed later.
	Retryable bool
	// Message describes the problem and its solution, in one sentence.
	Message string
	// Err is the cause, or nil.
	Err error
}

// Error returns the message and the cause.
func (e *Error) Error() string {
	message := e.Message
	if message == "" {
		message = string(e.Code)
	}
	if e.Err == nil {
		return message
	}
	return fmt.Sprintf("%s: %v", message, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error with the same code and no response ID, as the Err variables are.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.ResponseID == "" && t.Message == ""
}

// IsRetryable reports whether the same call may succeed later.
func IsRetryable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Retryable
}

// NotFound returns the error of Store.Get for a turn that does not exist.
func NotFound(responseID string) error {
	e := &chain.Error{Rule: chain.NotFound, ResponseID: responseID}
	return &Error{Code: Code(e.Code()), ResponseID: responseID, Message: e.Error()}
}
