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

// Package store is what gateways import to keep the turns of the OpenAI Responses API: a turn is saved under its
// response ID, and a later request that names it in previous_response_id gets the whole history back as one list of
// input items.
//
// There are three stores, with the same behaviour: store/kube keeps turns as ResponseSessions in a Kubernetes cluster,
// store/sqlite in a file, and store/memory in the process. Package storeurl opens the one that a URL names. Package
// storetest has the suite that all of them pass.
package store

import (
	"context"
	"encoding/json"
)

// Store keeps turns. It is bound to one namespace, which is the tenant: a chain never leaves it, and nothing of another
// namespace can be read, continued or deleted. All methods are safe for concurrent use, honour their context's deadline,
// and return an *Error where one of the codes of this package applies.
type Store interface {
	// Get returns the turn with a response ID, and an error that is ErrNotFound where there is none. The session is the
	// caller's: changing it changes nothing that is stored.
	Get(ctx context.Context, responseID string) (*Session, error)

	// Save stores a turn, all of it or nothing. Once it has returned, the turn resolves on every replica.
	//
	// The guards run in this order: the session itself (ErrInvalid, ErrTooLarge), then
	// SaveOptions.ExpectedPreviousResponseID (ErrConflict), then whether the response ID is taken (ErrConflict, unless
	// SaveOptions.Overwrite). A save of what is already stored, by Session.SameContent, is not a conflict but a success: so
	// a save whose answer was lost can be tried again. Neither the parent's existence nor its status is checked.
	//
	// On success Save sets session.Version, and changes nothing else of it.
	Save(ctx context.Context, session *Session, options SaveOptions) error

	// Resolve returns the history of a turn, or a page of it. It is the whole history or an error, never a part that
	// looks whole: ErrNotFound, ErrCycleDetected, ErrDepthExceeded, ErrUnavailable or ErrUnreadable. Where several
	// apply, the one nearest to the turn asked for wins, and the depth wins over all. The empty response ID has an empty
	// history.
	Resolve(ctx context.Context, responseID string, options ResolveOptions) (*History, error)

	// Delete removes a turn. Its descendants stay, and can no longer be resolved, unless DeleteOptions.Cascade is set.
	// It is no error where there is no such turn.
	Delete(ctx context.Context, responseID string, options DeleteOptions) error

	// InNamespace returns the store of another namespace. It shares the connections of this one and ends with it:
	// closing it does nothing.
	InNamespace(namespace string) Store

	// Close releases what the store holds. The store cannot be used afterwards. It may be called more than once.
	Close() error
}

// SaveOptions are the options of Store.Save. The zero value stores a turn whose response ID is new.
type SaveOptions struct {
	// Overwrite replaces the turn where there already is one with its response ID; where there is none, it is created.
	// The parent cannot be changed, nor a turn that was saved as immutable: that is a conflict. Where Session.Version is
	// set, the turn must still be there with that version, and otherwise it is a conflict, as it is where two overwrites
	// race.
	Overwrite bool

	// ExpectedPreviousResponseID, where set, must be the PreviousResponseID of the session that is saved, and the empty
	// string stands for none. It guards against saving a turn onto another parent than the one that was resolved.
	ExpectedPreviousResponseID *string
}

// DeleteOptions are the options of Store.Delete.
type DeleteOptions struct {
	// Cascade deletes all descendants too. They may be gone only some time after Delete has returned.
	Cascade bool
}

// Which turns' instructions are among the items of a history.
const (
	// InstructionsAll puts every turn's instructions before its input, as a system message. It is the default.
	InstructionsAll = "All"
	// InstructionsLast leaves out all instructions but those of the turn asked for.
	InstructionsLast = "Last"
	// InstructionsOmit leaves out all instructions, as OpenAI's own API does.
	InstructionsOmit = "Omit"
)

// The orders of the items of a history.
const (
	// OrderAscending has the oldest item first. It is the default.
	OrderAscending = "asc"
	// OrderDescending has the newest item first.
	OrderDescending = "desc"
)

// DefaultMaxDepth is how many turns a chain may have where ResolveOptions name no limit and the store was not told
// another.
const DefaultMaxDepth = 64

// MaxLimit is the largest ResolveOptions.Limit.
const MaxLimit = 1000

// ResolveOptions are the options of Store.Resolve. The zero value asks for the whole history.
type ResolveOptions struct {
	// MaxDepth is how many turns the chain may have; 0 fails always. Where it is nil, it is the store's default.
	MaxDepth *int
	// IncludeIncomplete lets turns pass that are not completed, with the items that they have.
	IncludeIncomplete bool
	// Instructions is InstructionsAll, InstructionsLast or InstructionsOmit; empty is InstructionsAll.
	Instructions string
	// Limit is the largest number of items in the answer, from 1 to MaxLimit; 0 asks for all.
	Limit int
	// After is History.Next of the page before, and needs a Limit. The turn asked for, IncludeIncomplete, Instructions
	// and Order must be the same as for that page.
	After string
	// Order is OrderAscending or OrderDescending; empty is OrderAscending.
	Order string
	// Version asks for an answer that is at least as new as this Session.Version. Without it, an overwrite or a deletion
	// may be missed for a moment; a new turn never is.
	Version string
}

// History is the answer to Store.Resolve: the items of every turn from the first one of the conversation to the one
// asked for, ready to be put before the input of the next request.
type History struct {
	// Parent is the turn asked for, as it was when it was resolved. It is the zero Handle for the empty response ID.
	Parent Handle
	// Turns are the response IDs of all turns of the chain, oldest first. A page has all of them too.
	Turns []string
	// Items are the input items as JSON objects: for each turn its instructions as a system message, the items of its
	// input and those of its output.
	Items []json.RawMessage
	// Next is the ResolveOptions.After of the next page. It is empty on the last page, and where no limit was given.
	Next string
}

// Handle identifies a turn as it was at some time. It says which turn a history ends with; whether that turn is still
// there is for nobody to conclude from it.
type Handle struct {
	ResponseID string
	// UID differs between a turn and one that was saved under the same response ID after it was deleted.
	UID string
}
