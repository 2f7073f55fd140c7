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
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The values of ConversationListOptions.Sort. Package store documents them.
const (
	SortCreated  = "created"
	SortUpdated  = "updated"
	SortActivity = "activity"
)

// The limits of lists of conversations.
const (
	// MaxListedTitleLength (100) is the number of characters that an entry has of a title.
	MaxListedTitleLength = 100
	// MaxDescendants (10,000) is the maximum number of conversations that a list of descendants visits.
	MaxDescendants = 10_000
)

// ConversationListOptions are the options of store.Conversations.List. The zero value returns the first page of the active conversations, the
// one that was created last first.
//
// The JSON names are those of the resolve API's query parameters. To add an option, add it here, to conversationListOptionValues, and
// with its documentation to ConversationListsOptions of the resolve API. If it selects or orders conversations, add it to the cursor, in
// internal/conversationlist.
type ConversationListOptions struct {
	// UserID selects the conversations of a user. If it is empty, those of all users are listed.
	UserID string `json:"userID,omitempty"`
	// States are the states of the listed conversations. If there are none, only the active ones are listed.
	States []string `json:"state,omitempty"`
	// ParentConversationID selects the conversations that are held on behalf of another one, as by sub-agents. It need not exist.
	ParentConversationID string `json:"parentConversationID,omitempty"`
	// Descendants also selects the children of these conversations, and theirs, in whatever state those in between are. It requires a
	// ParentConversationID, which itself is not listed. If there are more than MaxDescendants, the error is ErrConversationLimitExceeded.
	Descendants bool `json:"descendants,omitempty"`
	// Sort is "created", "updated" or "activity"; empty means "created".
	Sort string `json:"sort,omitempty"`
	// Order is "asc" or "desc"; empty means "desc".
	Order string `json:"order,omitempty"`
	// Limit is the maximum number of conversations to return, from 1 to MaxLimit; 0 means DefaultListLimit.
	Limit int `json:"limit,omitempty"`
	// After is ConversationList.Next of the previous page. All other options except Limit and Version must be the same as for that page.
	After string `json:"after,omitempty"`
	// Version requires a result at least as new as this Conversation.Version. Without it, a conversation that was created, changed or
	// deleted a moment ago may not be reflected.
	Version string `json:"resourceVersion,omitempty"`
}

// conversationListOptionValues defines the allowed values of each of the ConversationListOptions.
var conversationListOptionValues = []option{
	{"userID", nil, ""},
	listOf("state", ConversationStates...),
	{"parentConversationID", nil, ""},
	boolean("descendants"),
	oneOf("sort", SortCreated, SortUpdated, SortActivity),
	oneOf("order", OrderAscending, OrderDescending),
	between("limit", 1, MaxLimit),
	{"after", nil, ""},
	{"resourceVersion", nil, ""},
}

// ConversationStates are the values of Conversation.State.
var ConversationStates = []string{ConversationActive, ConversationArchived, ConversationDeleting}

// Query returns the options that are set as query parameters of the resolve API.
func (o ConversationListOptions) Query() url.Values { return queryOf(&o) }

// ParseConversationListQuery returns the options in a query. Its errors are those of ParseQuery.
func ParseConversationListQuery(query url.Values) (ConversationListOptions, error) {
	var options ConversationListOptions
	if err := parseQuery(query, &options, conversationListOptionValues); err != nil {
		return options, err
	}
	if options.Descendants && options.ParentConversationID == "" {
		return options, &OptionError{Name: "descendants", Problem: `needs "parentConversationID"`}
	}
	return options, nil
}

// Validate returns an error for options whose value is not allowed.
func (o ConversationListOptions) Validate() error {
	if err := checkText("user ID", o.UserID, 0, MaxUserIDLength); err != nil {
		return err
	}
	if err := checkText("ID of the parent conversation", o.ParentConversationID, 0, MaxIDLength); err != nil {
		return err
	}
	for _, state := range o.States {
		if !slices.Contains(ConversationStates, state) {
			return NewOptionError("state", state, "one of "+strings.Join(ConversationStates, ", "))
		}
	}
	_, err := ParseConversationListQuery(o.Query())
	return err
}

// WithDefaults returns the options with the defaults of Sort, Order and Limit, and with each of the States once. Without States, it
// has those that are active.
func (o ConversationListOptions) WithDefaults() ConversationListOptions {
	if len(o.States) == 0 {
		o.States = []string{ConversationActive}
	}
	o.States = slices.Compact(slices.Sorted(slices.Values(o.States)))
	o.Sort = cmp.Or(o.Sort, SortCreated)
	o.Order = cmp.Or(o.Order, OrderDescending)
	o.Limit = cmp.Or(o.Limit, DefaultListLimit)
	return o
}

// ConversationList is the result of store.Conversations.List: a page of conversations.
type ConversationList struct {
	// Conversations are in the requested order.
	Conversations []ConversationInfo
	// Next is the ConversationListOptions.After of the next page. It is empty on the last page.
	Next string
}

// ConversationInfo is what a ConversationList has of a conversation. Times are to the second.
type ConversationInfo struct {
	ConversationID, UserID string
	// Title has the first MaxListedTitleLength characters of the title.
	Title string
	State string
	// ParentConversationID is that of the conversation, or empty.
	ParentConversationID string
	// HeadResponseID is Head.ResponseID.
	HeadResponseID string
	// CreatedAt is when the conversation was created.
	CreatedAt time.Time
	// UpdatedAt is when the conversation itself was last changed: what describes it, its state, or its head.
	UpdatedAt time.Time
	// LastActivityAt is when a turn of the conversation was last stored, or when the conversation was created.
	LastActivityAt time.Time
}

// ConversationLister is implemented by drivers that can list conversations.
type ConversationLister interface {
	// ListConversations returns a page of conversations. See store.Conversations.List for its guarantees, and package
	// internal/conversationlist for the order and the cursors. The options are valid, and have their defaults.
	ListConversations(ctx context.Context, namespace string, options ConversationListOptions) (*ConversationList, error)
}

// ListedTitle returns ConversationInfo.Title for a title.
func ListedTitle(title string) string {
	end := 0
	for range MaxListedTitleLength {
		_, size := utf8.DecodeRuneInString(title[end:])
		end += size
	}
	return strings.Clone(title[:end])
}

// TooManyDescendants returns the error for a list of more than MaxDescendants.
func TooManyDescendants(conversationID string) *Error {
	return conversationError(CodeConversationLimitExceeded, conversationID,
		"conversation %.100q has more than %d descendants: list the children of each", conversationID, MaxDescendants)
}
