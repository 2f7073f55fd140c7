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
	"fmt"
	"iter"
)

// Rule is a rule that a chain can break. Its methods return everything that follows from a broken rule, on every
// surface: the condition of a ResponseSession, the error of the resolve API and of package store, and the sentence that
// all of them use. The rules are in the order in which Walk checks them, so that the first broken rule wins.
type Rule uint8

const (
	// Resolved is not a rule: it indicates that none is broken.
	Resolved Rule = iota
	// DepthExceeded is broken by a chain that has more turns than the limit. A limit of 0 fails every walk.
	DepthExceeded
	// CycleDetected is broken by a chain that leads back to a turn that it has already passed.
	CycleDetected
	// NotFound is broken if the requested turn is not stored.
	NotFound
	// ParentNotFound is broken if an ancestor is not stored.
	ParentNotFound
	// TurnPending is broken by a turn that is queued or in progress, unless incomplete turns are included.
	TurnPending
	// TurnIncomplete is broken by a turn whose status is incomplete, unless such turns are continued or included.
	TurnIncomplete
	// TurnNotCompleted is broken by a turn with any other status than completed, unless incomplete turns are included.
	TurnNotCompleted
	// SnapshotUnreadable is broken by a turn whose bodies cannot be read or flattened.
	SnapshotUnreadable
	// NameMismatch is broken by an object whose name does not follow from its response ID. Such a turn is in no chain,
	// so that no walk meets it.
	NameMismatch

	numRules
)

// Code is the machine-readable code of an error, as it goes over the wire.
type Code string

// The codes of broken chains. Several rules share one code.
const (
	CodeNotFound      Code = "session.chain.not_found"
	CodeCycleDetected Code = "session.chain.cycle_detected"
	CodeDepthExceeded Code = "session.chain.depth_exceeded"
	CodeUnavailable   Code = "session.chain.unavailable"
	CodeUnreadable    Code = "session.snapshot.unreadable"
)

// The reasons of the ChainValid condition. Package v1alpha1 documents them.
const (
	ReasonResolved           = "Resolved"
	ReasonDepthExceeded      = "DepthExceeded"
	ReasonCycleDetected      = "CycleDetected"
	ReasonParentNotFound     = "ParentNotFound"
	ReasonTurnPending        = "TurnPending"
	ReasonTurnIncomplete     = "TurnIncomplete"
	ReasonTurnNotCompleted   = "TurnNotCompleted"
	ReasonSnapshotUnreadable = "SnapshotUnreadable"
	ReasonNameMismatch       = "NameMismatch"
)

// The statuses of the ChainValid condition, as metav1.ConditionStatus has them.
const (
	conditionTrue    = "True"
	conditionFalse   = "False"
	conditionUnknown = "Unknown"
)

// The HTTP statuses of broken chains, as package net/http has them.
const (
	httpNotFound      = 404
	httpConflict      = 409
	httpUnprocessable = 422
)

// rule is one row of the table. A row without broken is not checked by the walk, and one without reason is never the
// verdict on a stored turn.
type rule struct {
	broken     func(s *step) bool
	reason     string
	status     string
	code       Code
	httpStatus int
	retryable  bool
	sentence   func(e *Error) string
}

// rules is the complete definition of each rule, in the order of the walk. To add a rule, add its constant above and its
// row here, and document its reason in package v1alpha1.
var rules = [numRules]rule{
	Resolved: {
		reason: ReasonResolved, status: conditionTrue,
		sentence: func(*Error) string { return "every turn up to the root is stored and completed" },
	},
	DepthExceeded: {
		broken: func(s *step) bool { return s.passed >= s.maxDepth },
		reason: ReasonDepthExceeded, status: conditionFalse, code: CodeDepthExceeded, httpStatus: httpUnprocessable,
		sentence: func(e *Error) string {
			return fmt.Sprintf("the chain of response %q has more than %d turns: %q is beyond the limit, which a request can raise with maxDepth",
				e.PreviousResponseID, e.MaxDepth, e.ResponseID)
		},
	},
	CycleDetected: {
		broken: func(s *step) bool { return s.repeated },
		reason: ReasonCycleDetected, status: conditionFalse, code: CodeCycleDetected, httpStatus: httpUnprocessable,
		sentence: func(e *Error) string {
			return fmt.Sprintf("the chain of response %q contains a cycle: it leads back to %q", e.PreviousResponseID, e.ResponseID)
		},
	},
	NotFound: {
		broken: func(s *step) bool { return s.fetched && !s.found && s.passed == 0 },
		code:   CodeNotFound, httpStatus: httpNotFound,
		sentence: func(e *Error) string { return fmt.Sprintf("response %q was not found", e.ResponseID) },
	},
	ParentNotFound: {
		broken: func(s *step) bool { return s.fetched && !s.found },
		reason: ReasonParentNotFound, status: conditionFalse, code: CodeNotFound, httpStatus: httpUnprocessable,
		sentence: func(e *Error) string {
			return fmt.Sprintf("response %q, an ancestor of %q, was not found", e.ResponseID, e.PreviousResponseID)
		},
	},
	TurnPending: {
		broken: func(s *step) bool { return s.found && !s.includeIncomplete && s.turn.pending() },
		reason: ReasonTurnPending, status: conditionUnknown, code: CodeUnavailable, httpStatus: httpConflict, retryable: true,
		sentence: func(e *Error) string {
			return fmt.Sprintf("response %q is %s and cannot be used as context until it is completed", e.ResponseID, e.state("pending", ""))
		},
	},
	TurnIncomplete: {
		broken: func(s *step) bool {
			return s.found && !s.includeIncomplete && !s.continueIncomplete && s.turn.Status == StatusIncomplete
		},
		reason: ReasonTurnIncomplete, status: conditionFalse, code: CodeUnavailable, httpStatus: httpConflict,
		sentence: func(e *Error) string {
			return fmt.Sprintf("response %q is incomplete, and can be used as context only by a request with continueIncomplete", e.ResponseID)
		},
	},
	TurnNotCompleted: {
		broken: func(s *step) bool {
			return s.found && !s.includeIncomplete && s.turn.Status != StatusCompleted && s.turn.Status != StatusIncomplete
		},
		reason: ReasonTurnNotCompleted, status: conditionFalse, code: CodeUnavailable, httpStatus: httpConflict,
		sentence: func(e *Error) string {
			return fmt.Sprintf("response %q is %s and cannot be used as context", e.ResponseID, e.state("not completed", ", not completed,"))
		},
	},
	SnapshotUnreadable: {
		broken: func(s *step) bool { return s.found && !s.includeUnreadable && s.turn.Unreadable },
		reason: ReasonSnapshotUnreadable, status: conditionFalse, code: CodeUnreadable, httpStatus: httpUnprocessable,
		sentence: func(e *Error) string {
			sentence := fmt.Sprintf("the snapshot of response %q cannot be read or turned into input items", e.ResponseID)
			if e.Problem != "" {
				sentence += ": " + e.Problem
			}
			return sentence
		},
	},
	NameMismatch: {
		reason: ReasonNameMismatch, status: conditionFalse,
		sentence: func(e *Error) string {
			return fmt.Sprintf("the object of response %q must be named %q: an object with another name is not part of any chain", e.ResponseID, e.ObjectName)
		},
	},
}

// Reasons yields the rules that can be the verdict on a stored turn, Resolved included.
func Reasons() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for r := range numRules {
			if rules[r].reason != "" && !yield(r) {
				return
			}
		}
	}
}

// Reason returns the reason of the ChainValid condition, empty for NotFound: a turn that is not stored has no condition.
func (r Rule) Reason() string { return rules[r].reason }

// ConditionStatus returns the status of the ChainValid condition: True, False or Unknown. It is empty if Reason is.
func (r Rule) ConditionStatus() string { return rules[r].status }

// Code returns the wire code of the error, empty for Resolved and NameMismatch.
func (r Rule) Code() Code { return rules[r].code }

// HTTPStatus returns the status code of the resolve API's answer, 0 if Code is empty.
func (r Rule) HTTPStatus() int { return rules[r].httpStatus }

// Retryable reports whether the same request can succeed later without anyone repairing the chain.
func (r Rule) Retryable() bool { return rules[r].retryable }

// String returns the reason, or the code if the rule has no reason.
func (r Rule) String() string {
	if r.Reason() == "" {
		return string(r.Code())
	}
	return r.Reason()
}

// CanBeOwned reports whether a stored turn without an ownerReference may get one to its parent: the parent must be stored,
// and following the parents must not lead back to the turn, because garbage collection would delete a cycle of references
// as a whole. A saver that sets the reference of a new turn cannot close such a cycle: when it saves the last turn of a
// cycle of parents, the child of that turn has no reference yet, and gets none.
func (v Verdict) CanBeOwned(parentStored bool) bool { return parentStored && !v.OnCycle }

// step is the input of the rules for one step of a walk, before the turn is fetched and again after.
type step struct {
	maxDepth                                                 int
	continueIncomplete, includeIncomplete, includeUnreadable bool
	// passed is the number of turns that the walk has collected, and repeated is set if this one is among them.
	passed   int
	repeated bool
	// fetched is set once the turn has been requested, and found if it is stored.
	fetched, found bool
	turn           Turn
}

// firstBroken returns the first rule that a step breaks, and Resolved if it breaks none.
func firstBroken(s *step) Rule {
	for r := range numRules {
		if broken := rules[r].broken; broken != nil && broken(s) {
			return r
		}
	}
	return Resolved
}
