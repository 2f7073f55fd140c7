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

import "time"

// DefaultListLimit (100) is the number of entries on a page if ListOptions or ConversationListOptions do not set a limit.
const DefaultListLimit = 100

// ListOptions are the options of store.Store.List. The zero value returns the first page, oldest turn first.
//
// The JSON names are those of the resolve API's query parameters: see Query. To add an option, add it here, to listOptionValues,
// and with its documentation to ConversationTurnsOptions of the resolve API. If it selects or orders turns, add it to the
// cursors, in internal/sortedlist and, for the turns of a history, in internal/history.
type ListOptions struct {
	// Limit is the maximum number of turns to return, from 1 to MaxLimit; 0 means DefaultListLimit.
	Limit int `json:"limit,omitempty"`
	// After is TurnList.Next of the previous page. The conversation and Order must be the same as for that page.
	After string `json:"after,omitempty"`
	// Order is "asc" or "desc"; empty means "asc".
	Order string `json:"order,omitempty"`
	// History selects the turns of the history of the stored conversation with the ID: the chain of turns that ends at its head, whichever
	// Session.ConversationID they have, and whatever their status is. Turns that were rolled back are not part of it. Without History, all
	// turns with the conversation ID are listed, and the conversation need not be stored.
	History bool `json:"history,omitempty"`
	// Version requires a result at least as new as this Session.Version. Without it, a turn that was saved, overwritten or
	// deleted a moment ago may not be reflected.
	Version string `json:"resourceVersion,omitempty"`
}

// listOptionValues defines the allowed values of each of the ListOptions.
var listOptionValues = []option{
	between("limit", 1, MaxLimit),
	{"after", nil, ""},
	oneOf("order", OrderAscending, OrderDescending),
	boolean("history"),
	{"resourceVersion", nil, ""},
}

// ValidateFor returns an error for a conversation ID that no turn can have, and an *OptionError for an option whose value is not
// allowed.
func (o ListOptions) ValidateFor(conversationID string) error {
	if err := checkText("conversation ID", conversationID, 1, MaxIDLength); err != nil {
		return err
	}
	_, err := ParseListQuery(o.Query())
	return err
}

// TurnList is the result of store.Store.List: a page of the turns of a conversation.
type TurnList struct {
	// Turns are the turns in the requested order.
	Turns []TurnInfo
	// Next is the ListOptions.After of the next page. It is empty on the last page.
	Next string
	// Count is the number of turns on all pages, and Head the last one of the history, if ListOptions.History is set.
	Count int
	Head  string
}

// TurnInfo is what a TurnList has of a turn: the fields of its Session except the bodies.
type TurnInfo struct {
	ResponseID, PreviousResponseID string
	Status                         string
	CreatedAt, CompletedAt         time.Time
	// Version is Session.Version as of the list.
	Version string
}
