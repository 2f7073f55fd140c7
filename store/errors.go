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

package store

import (
	"errors"
	"fmt"
)

// Code is the machine-readable code of an Error, as it goes over the wire.
type Code string

// The codes of errors. Those of chains and snapshots are the resolve API's.
const (
	// CodeNotFound: the turn asked for, or one of its ancestors, does not exist.
	CodeNotFound Code = "session.chain.not_found"
	// CodeCycleDetected: the parents lead back to a turn that was already passed.
	CodeCycleDetected Code = "session.chain.cycle_detected"
	// CodeDepthExceeded: the chain has more turns than allowed.
	CodeDepthExceeded Code = "session.chain.depth_exceeded"
	// CodeUnavailable: a turn of the chain is not completed. A retry can help where it is queued or in progress.
	CodeUnavailable Code = "session.chain.unavailable"
	// CodeConflict: the response ID is taken, the parent is not the expected one, or an overwrite is not allowed or lost
	// a race.
	CodeConflict Code = "session.store.conflict"
	// CodeUnreadable: what is stored of a turn is missing, found to be damaged, or not what the Responses API has.
	CodeUnreadable Code = "session.snapshot.unreadable"
	// CodeTooLarge: the turn is larger than the store takes, or the history larger than it answers. Nothing was stored.
	CodeTooLarge Code = "session.snapshot.too_large"
	// CodeInvalid: the session or the options are not allowed as they are. Nothing was stored.
	CodeInvalid Code = "session.store.invalid"
	// CodeUnreachable: the store could not be asked, or did not answer in time. A retry can help; whether a turn was
	// stored is not known until it is tried again.
	CodeUnreachable Code = "session.store.unreachable"
)

// Errors to compare with errors.Is: an *Error is the one of its code.
var (
	ErrNotFound      error = &Error{Code: CodeNotFound}
	ErrCycleDetected error = &Error{Code: CodeCycleDetected}
	ErrDepthExceeded error = &Error{Code: CodeDepthExceeded}
	ErrUnavailable   error = &Error{Code: CodeUnavailable}
	ErrConflict      error = &Error{Code: CodeConflict}
	ErrUnreadable    error = &Error{Code: CodeUnreadable}
	ErrTooLarge      error = &Error{Code: CodeTooLarge}
	ErrInvalid       error = &Error{Code: CodeInvalid}
	ErrUnreachable   error = &Error{Code: CodeUnreachable}
)

// Error is the error of a store where one of its codes applies. Get it with errors.AsType or errors.As.
type Error struct {
	Code Code
	// ResponseID is the turn at which it failed.
	ResponseID string
	// PreviousResponseID is the turn that was asked for, where a chain could not be resolved.
	PreviousResponseID string
	// Retryable says that the same call may succeed later.
	Retryable bool
	// Message says what is wrong and what to do, in one sentence.
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
