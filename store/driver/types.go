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

import "encoding/json"

// DefaultNamespace is the namespace of a store outside of a cluster whose URL does not specify one.
const DefaultNamespace = "default"

// SaveOptions are the options of store.Store.Save. The zero value stores a turn with a new response ID.
type SaveOptions struct {
	// Overwrite replaces the stored turn with the same response ID, or creates the turn. Changing the parent,
	// or a turn that was saved as immutable, is a conflict. If Session.Version is set and the stored turn has another version,
	// that is a conflict too, as it is when two overwrites race.
	Overwrite bool

	// Existing stores no turn that is not stored: then the error is ErrNotFound.
	Existing bool

	// ExpectedPreviousResponseID, if set, must equal the PreviousResponseID of the session; the empty string means that the
	// session must not have a parent. It prevents saving a turn onto a different parent than the one that was resolved.
	ExpectedPreviousResponseID *string

	// Parent may be the History.Parent of the history that the turn continues. It saves time in a cluster, and changes nothing else:
	// it is only a guess at what the parent is now, and is ignored if it is another turn than the session's PreviousResponseID.
	Parent Handle
}

// DeleteOptions are the options of store.Store.Delete.
type DeleteOptions struct {
	// Cascade also deletes all descendants, and the turn itself last: after an error, another Delete continues. If the turn
	// does not exist, nothing is deleted. Snapshots may be removed only some time after Delete has returned.
	Cascade bool
}

// History is the result of store.Store.Resolve: the items of every turn of the chain, from the root to the requested turn, ready
// to be prepended to the input of the next request.
type History struct {
	// Parent identifies the requested turn as it was when it was resolved. It is the zero Handle for the empty response ID.
	Parent Handle
	// Turns are the response IDs of all turns of the chain, or the last ones if ResolveOptions.Last is set, oldest first. A page has all of
	// them too.
	Turns []string
	// PreviousResponseID is the parent of the first of the Turns. It is empty unless ResolveOptions.Last leaves turns out.
	PreviousResponseID string
	// Items are the input items as JSON objects: for each turn its instructions as a system message, its input items, and its
	// output items.
	Items []json.RawMessage
	// Origins say which turns the items belong to, in the order of the items, if ResolveOptions.Origins is set.
	Origins []Origin
	// Sessions are the stored turns as Store.Get returns them, in the order of Turns, if ResolveOptions.Bodies is set. They are in the state
	// that Items were made from.
	Sessions []*Session
	// Digests are the digests of the Turns, in their order, if ResolveOptions.Digests is set. A page has all of them too. The digest of a
	// turn is "sha256:" and, in lower-case hex, the SHA-256 of the JSON list of all its entries: the instructions as a system message, if it
	// has any, and its items, separated by commas without spaces, whichever of them the options select. Stores that keep the bodies byte for
	// byte have the same digests. In a cluster, the API server changes the JSON of bodies that another program than this library has saved
	// in the object.
	Digests []string
	// Next is the ResolveOptions.After of the next page. It is empty on the last page, and if no limit was given.
	Next string
}

// Origin is the origin of consecutive items of a History, which belong to one turn. Within a turn, items are numbered from 0: those of the
// request's input, then those of the response's output.
type Origin struct {
	// ResponseID is the response ID of the turn.
	ResponseID string `json:"responseID"`
	// First is the number of the first of the items in the order of the History. Its instructions are not an item of a turn, and have the
	// number -1.
	First int `json:"first"`
	// Count is how many items there are. Each has the next higher number, or the next lower one in descending order.
	Count int `json:"count"`
}

// Handle identifies a turn at a point in time: the last turn of a history. The turn may have been deleted since.
type Handle struct {
	// ResponseID is the response ID of the turn.
	ResponseID string
	// UID distinguishes a turn from one that was saved under the same response ID after the first was deleted.
	UID string
}
