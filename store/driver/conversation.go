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
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// The values of Conversation.State. Package store documents them.
const (
	ConversationActive   = "Active"
	ConversationArchived = "Archived"
	ConversationDeleting = "Deleting"
)

// The limits of a conversation and its summaries.
const (
	MaxUserIDLength              = 512    // characters
	MaxTitleLength               = 1024   // characters
	MaxSystemPromptLength        = 65_536 // characters
	MaxSummaryLength             = 65_536 // characters
	MaxConversationMetadataBytes = 65_536
	MaxHiddenItems               = 1000
	MaxSummaries                 = 256

	MinReservation = time.Second
	MaxReservation = 10 * time.Minute
)

// Conversation is a name for the chain of turns that ends at its head.
type Conversation struct {
	// ConversationID is 1 to 512 characters. It cannot change.
	ConversationID string
	// UserID is the user that the conversation belongs to, or empty. Catena does not interpret it.
	UserID string
	// Title and SystemPrompt are for the gateway, or empty. Catena does not interpret them.
	Title, SystemPrompt string
	// Metadata is a JSON object, or nil. A store preserves the JSON value.
	Metadata json.RawMessage
	// State is ConversationActive, ConversationArchived or ConversationDeleting.
	State string
	// Head is where the history ends.
	Head Head
	// ForkedFrom is where the conversation was forked from, or zero. It cannot change.
	ForkedFrom Fork
	// ParentConversationID is the conversation on whose behalf this one is held, as by a sub-agent, or empty. It need not exist, and
	// cannot change.
	ParentConversationID string
	// HiddenItems are the items of turns that are not part of the conversation's history, in the order in which they were hidden, at
	// most MaxHiddenItems.
	HiddenItems []HiddenItem
	// CreatedAt is when the store has created the conversation, to the second. The store sets it.
	CreatedAt time.Time
	// Version is set by a store whose lists can lag behind, for ConversationListOptions.Version. It is otherwise empty.
	Version string
}

// Head is where the history of a conversation ends. See package store's Conversations for the protocol that changes it.
type Head struct {
	// ResponseID is the last turn, or the one for which this place is reserved. It is empty if the conversation has no turns.
	ResponseID string
	// BaseResponseID is the turn before it, with which the history ends as long as the turn ResponseID is not stored. It is
	// empty without a reservation, and if the reserved turn is the first.
	BaseResponseID string
	// Reservation is the reservation that was made for the turn ResponseID, or zero. It stays when the turn is stored.
	Reservation Reservation
}

// Reservation is the time for which a place in a conversation is reserved.
type Reservation struct {
	// Duration is how long others must see the same Head before they may take over its place, in whole seconds, from MinReservation to
	// MaxReservation.
	Duration time.Duration
	// Renewals grows by one with each renewal, which begins the Duration again. It begins with a random number, so that no two
	// reservations are equal, even if they are for the same turn.
	Renewals int64
}

// Holds reports whether a turn with the response ID and the given parent is in the place of the head. Otherwise another attempt to append the
// turn has saved it after it had lost its place, and the turn counts as not stored.
func (h Head) Holds(parent string) bool {
	return h.Reservation == (Reservation{}) || h.BaseResponseID == parent
}

// Fork is the turn at which a conversation was forked.
type Fork struct {
	ConversationID string
	// ResponseID is empty if the conversation had no turns.
	ResponseID string
}

// HiddenItem is an item of a turn that is not part of a conversation's history.
type HiddenItem struct {
	ResponseID string `json:"responseID"`
	// Number is the number of the item in its turn, as in Origin.
	Number int `json:"number"`
}

// ConversationUpdate is a change of a conversation. What is not set stays unchanged.
type ConversationUpdate struct {
	// ExpectedState and ExpectedHead, if set, must be what is stored. Otherwise, nothing is changed, and the update is a conflict.
	ExpectedState string
	ExpectedHead  *Head
	// State and Head replace what is stored.
	State string
	Head  *Head
	// Hide is added to the HiddenItems, unless it is one. If there are MaxHiddenItems, the error is TooManyHidden.
	Hide *HiddenItem
	ConversationPatch
}

// ConversationPatch is a change of what describes a conversation. What is nil stays unchanged, and what is empty is cleared.
type ConversationPatch struct {
	UserID, Title, SystemPrompt *string
	// Metadata replaces all metadata. The JSON null, or an empty value that is not nil, clears it. A driver does not get the latter.
	Metadata json.RawMessage
	// MetadataMembers are set in the metadata, after Metadata has replaced it. The JSON null removes a member. Concurrent changes of
	// different members all take effect. In a cluster, the error is a Conflict if others change the conversation all the time.
	MetadataMembers map[string]json.RawMessage
}

// Summary is a summary of consecutive turns of a conversation, which takes their place in the context of a model.
type Summary struct {
	// StartTurn and EndTurn are the numbers of the first turn and of the one after the last, counted from 0.
	StartTurn, EndTurn int
	// Content is the text, of 1 to 65,536 characters.
	Content string
	// TokenCount is the number of tokens of the Content, or 0 if unknown.
	TokenCount int
	// CreatedAt is when the summary was made, to the second; zero if unknown.
	CreatedAt time.Time
}

// Conversations is implemented by drivers that can store conversations. They also implement Lister.
//
// A driver only stores. The caller, store.Conversations, has validated everything that it passes, and decides what follows. All methods
// are safe for concurrent use: changes of a conversation take effect one after the other, and whatever a call has returned, every later call
// sees, on every replica. Errors are as those of Store: a conversation that does not exist is a ConversationNotFound.
type Conversations interface {
	// CreateConversation stores a conversation and returns it. If the conversation ID is taken, the error is a Conflict.
	CreateConversation(ctx context.Context, namespace string, conversation *Conversation) (*Conversation, error)

	// GetConversation returns a conversation.
	GetConversation(ctx context.Context, namespace, conversationID string) (*Conversation, error)

	// UpdateConversation changes a conversation and returns it. If an attempt may have taken effect despite its error, the next one
	// can be a conflict with it. An update that changes nothing does not change the times of the conversation.
	UpdateConversation(ctx context.Context, namespace, conversationID string, update ConversationUpdate) (*Conversation, error)

	// DeleteConversation removes a conversation and its summaries, but no turn. It is not an error if it does not exist.
	DeleteConversation(ctx context.Context, namespace, conversationID string) error

	// GetWithoutBodies returns the turn with a response ID as Store.Get does, but with nil bodies, which it need not read.
	GetWithoutBodies(ctx context.Context, namespace, responseID string) (*Session, error)

	// SaveSummary stores a summary, which changes the conversation. If one of the same turns is stored, the error is a Conflict, unless
	// they are equal: then nothing is changed. If there are MaxSummaries, the error is TooManySummaries.
	SaveSummary(ctx context.Context, namespace, conversationID string, summary Summary) error

	// Summaries returns the summaries of a conversation by their StartTurn and then their EndTurn.
	Summaries(ctx context.Context, namespace, conversationID string) ([]Summary, error)
}

// ConversationDeleter is implemented by drivers of stores in which nothing else deletes the turns of conversations that are
// ConversationDeleting, as the operator does in a cluster.
type ConversationDeleter interface {
	// DeleteConversationTurns deletes the turns of a conversation that is ConversationDeleting, as store.Conversations.Delete describes it,
	// and then the conversation and its summaries. It does nothing if the conversation does not exist or is not ConversationDeleting. It
	// does not wait for a turn for which a place is reserved. If it is interrupted, the next call continues.
	DeleteConversationTurns(ctx context.Context, namespace, conversationID string) error
}

// Apply changes a conversation, which must not be shared. The error is a Conflict if it is not as the update expects. After an error, nothing
// is changed.
func (u *ConversationUpdate) Apply(c *Conversation) error {
	if u.ExpectedState != "" && u.ExpectedState != c.State || u.ExpectedHead != nil && *u.ExpectedHead != c.Head {
		return ConversationChanged(c.ConversationID)
	}
	metadata, err := u.apply(c.Metadata)
	if err != nil {
		return invalidConversation(c.ConversationID, err)
	}
	if u.Hide != nil && !slices.Contains(c.HiddenItems, *u.Hide) {
		if len(c.HiddenItems) >= MaxHiddenItems {
			return TooManyHidden(c.ConversationID)
		}
		c.HiddenItems = append(c.HiddenItems, *u.Hide)
	}
	if u.State != "" {
		c.State = u.State
	}
	if u.Head != nil {
		c.Head = *u.Head
	}
	for _, field := range []struct{ stored, next *string }{
		{&c.UserID, u.UserID}, {&c.Title, u.Title}, {&c.SystemPrompt, u.SystemPrompt},
	} {
		if field.next != nil {
			*field.stored = *field.next
		}
	}
	c.Metadata = metadata
	return nil
}

// apply returns what becomes of metadata.
func (p ConversationPatch) apply(metadata json.RawMessage) (json.RawMessage, error) {
	switch {
	case string(p.Metadata) == "null":
		metadata = nil
	case p.Metadata != nil:
		metadata = slices.Clone(p.Metadata)
	}
	if len(p.MetadataMembers) == 0 {
		return metadata, nil
	}
	merged := map[string]json.RawMessage{}
	if metadata != nil && string(metadata) != "null" { // earlier versions have stored null
		if err := json.Unmarshal(metadata, &merged); err != nil {
			return nil, fmt.Errorf("the stored metadata: %w", err)
		}
	}
	for name, value := range p.MetadataMembers {
		if value == nil || jsonvalue.IsNull(strings.TrimSpace(string(value))) {
			delete(merged, name)
		} else {
			merged[name] = value
		}
	}
	if metadata == nil && len(merged) == 0 {
		return nil, nil
	}
	raw, err := jsonvalue.Marshal(merged)
	if err != nil {
		return nil, err
	}
	return raw, checkMetadataSize(raw)
}

// Clone returns a deep copy of the conversation.
func (c *Conversation) Clone() *Conversation {
	clone := *c
	clone.Metadata = append(json.RawMessage(nil), c.Metadata...)
	clone.HiddenItems = slices.Clone(c.HiddenItems)
	return &clone
}

// TooManyHidden returns the error for hiding more than MaxHiddenItems.
func TooManyHidden(conversationID string) *Error {
	return conversationError(CodeConversationLimitExceeded, conversationID,
		"conversation %.100q has %d hidden items, and can have no more: continue with a new conversation that is not a fork", conversationID, MaxHiddenItems)
}

// TooManySummaries returns the error for saving more than MaxSummaries.
func TooManySummaries(conversationID string) *Error {
	return conversationError(CodeConversationLimitExceeded, conversationID,
		"conversation %.100q has %d summaries, and can have no more: continue with a new conversation", conversationID, MaxSummaries)
}

// ConversationNotFound returns the error for a conversation that does not exist.
func ConversationNotFound(conversationID string) *Error {
	return conversationError(CodeConversationNotFound, conversationID, "conversation %.100q does not exist", conversationID)
}

// ConversationChanged returns the conflict for an update of a conversation that is not as expected.
func ConversationChanged(conversationID string) *Error {
	return conversationError(CodeConflict, conversationID, "conversation %.100q was changed since it was read", conversationID)
}

// ConversationExists returns the conflict for the creation of a conversation whose ID is taken.
func ConversationExists(conversationID string) *Error {
	return conversationError(CodeConflict, conversationID, "conversation %.100q already exists", conversationID)
}

// SummaryExists returns the conflict for another summary of the same turns.
func SummaryExists(conversationID string, s Summary) *Error {
	return conversationError(CodeConflict, conversationID,
		"conversation %.100q already has another summary of the turns from %d to before %d", conversationID, s.StartTurn, s.EndTurn)
}

func conversationError(code Code, conversationID, format string, args ...any) *Error {
	return &Error{Code: code, ConversationID: conversationID, Message: fmt.Sprintf(format, args...)}
}
