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

package chain

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Error reports why a chain does not resolve.
type Error struct {
	// Rule is the rule that the chain breaks.
	Rule Rule
	// ResponseID is the response ID at which the walk failed.
	ResponseID string
	// PreviousResponseID is the requested response ID.
	PreviousResponseID string
	// MaxDepth is the limit of the walk.
	MaxDepth int
	// Status is the status of the response at which the walk failed, empty if that was not fetched or is not to be named.
	Status string
	// Problem is why the snapshot is unreadable, empty if that is not known. It does not quote bodies. Only set with
	// SnapshotUnreadable.
	Problem string
	// ObjectName is the name that the object must have; only set with NameMismatch.
	ObjectName string
}

// Error returns one sentence, in lower case and without a full stop, that names the response ID and the broken rule.
func (e *Error) Error() string { return rules[e.Rule].sentence(e) }

// Message returns Error as the message of a condition, with an upper-case first letter and a full stop.
func (e *Error) Message() string {
	sentence := e.Error()
	first, size := utf8.DecodeRuneInString(sentence)
	return string(unicode.ToUpper(first)) + sentence[size:] + "."
}

// Code returns the wire code of the error.
func (e *Error) Code() Code { return e.Rule.Code() }

// state returns the quoted status with a suffix, or a general word if there is no status.
func (e *Error) state(general, suffix string) string {
	if e.Status == "" {
		return general
	}
	return strconv.Quote(e.Status) + suffix
}
