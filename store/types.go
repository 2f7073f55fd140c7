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
	"time"

	"github.com/catena-dev/catena/store/driver"
)

type (
	// Session is one stored turn: its request, its response, and the ID of the previous turn. Its methods return commonly used
	// parts of the bodies.
	Session = driver.Session
	// Usage is the number of tokens that a turn used.
	Usage = driver.Usage
	// History is the result of Store.Resolve: the items of every turn of the chain, from the root to the requested turn, or a
	// page of them.
	History = driver.History
	// Origin says which turn consecutive items of a History belong to.
	Origin = driver.Origin
	// Handle identifies the last turn of a History as it was when it was resolved.
	Handle = driver.Handle
	// TurnList is the result of Store.List: a page of the turns of a conversation, without their bodies.
	TurnList = driver.TurnList
	// TurnInfo is what a TurnList has of a turn. Store.Get returns the rest.
	TurnInfo = driver.TurnInfo
	// SaveOptions are the options of Store.Save. The zero value stores a turn with a new response ID.
	SaveOptions = driver.SaveOptions
	// ResolveOptions are the options of Store.Resolve. The zero value returns the whole history.
	ResolveOptions = driver.ResolveOptions
	// ListOptions are the options of Store.List. The zero value returns the first page, oldest turn first.
	ListOptions = driver.ListOptions
	// DeleteOptions are the options of Store.Delete. The zero value deletes one turn and keeps its descendants.
	DeleteOptions = driver.DeleteOptions
	// ConversationListOptions are the options of Conversations.List. The zero value returns the first page of the active conversations,
	// the one that was created last first.
	ConversationListOptions = driver.ConversationListOptions
	// ConversationList is the result of Conversations.List: a page of conversations.
	ConversationList = driver.ConversationList
	// ConversationInfo is what a ConversationList has of a conversation. Conversations.Get returns the rest.
	ConversationInfo = driver.ConversationInfo
	// Conversation is a name for the chain of turns that ends at its head.
	Conversation = driver.Conversation
	// Head is where the history of a conversation ends.
	Head = driver.Head
	// Fork is the turn at which a conversation was forked.
	Fork = driver.Fork
	// HiddenItem is an item of a turn that is not part of a conversation's history.
	HiddenItem = driver.HiddenItem
	// ConversationPatch is a change of what describes a conversation. What is nil stays unchanged, and what is empty is cleared.
	ConversationPatch = driver.ConversationPatch
	// Summary is a summary of consecutive turns of a conversation.
	Summary = driver.Summary
	// Error is a store's error if one of the codes applies. Get it with errors.AsType or errors.As.
	Error = driver.Error
	// Code is the machine-readable code of an Error, as in responses of the resolve API.
	Code = driver.Code
)

// The values of Session.Status that Catena interprets. They mirror the status of OpenAI's Response object; any other string is
// stored unchanged and treated as not completed.
const (
	StatusQueued     = driver.StatusQueued     // "queued"
	StatusInProgress = driver.StatusInProgress // "in_progress"
	StatusCompleted  = driver.StatusCompleted  // "completed": such a turn can be used as context
	StatusIncomplete = driver.StatusIncomplete // "incomplete": with ContinueIncomplete, such a turn can be used as context, too
	StatusFailed     = driver.StatusFailed     // "failed"
	StatusCancelled  = driver.StatusCancelled  // "cancelled"
)

// The values of Conversation.State.
const (
	// ConversationActive ("Active") is the state of a conversation that can be continued.
	ConversationActive = driver.ConversationActive
	// ConversationArchived ("Archived") is the state of one that cannot be continued until it is unarchived.
	ConversationArchived = driver.ConversationArchived
	// ConversationDeleting ("Deleting") is the state of one that is being deleted with its turns.
	ConversationDeleting = driver.ConversationDeleting
)

// The values of ResolveOptions.Instructions, which selects the turns whose instructions are part of a history.
const (
	// InstructionsAll ("All") puts every turn's instructions before its input, as a system message. It is the default.
	InstructionsAll = driver.InstructionsAll
	// InstructionsLast ("Last") omits all instructions except those of the requested turn.
	InstructionsLast = driver.InstructionsLast
	// InstructionsOmit ("Omit") omits all instructions, as OpenAI's own API does.
	InstructionsOmit = driver.InstructionsOmit
)

// The values of ResolveOptions.Order, ListOptions.Order and ConversationListOptions.Order: the order of the items of a history, of the turns
// of a conversation, and of conversations.
const (
	OrderAscending  = driver.OrderAscending  // "asc": the oldest one first. It is the default of items and turns.
	OrderDescending = driver.OrderDescending // "desc": the newest one first. It is the default of conversations.
)

// The values of ConversationListOptions.Sort: the time of the ConversationInfo by which conversations are sorted.
const (
	SortCreated  = driver.SortCreated  // "created": CreatedAt. It is the default.
	SortUpdated  = driver.SortUpdated  // "updated": UpdatedAt
	SortActivity = driver.SortActivity // "activity": LastActivityAt
)

// The limits of sessions and options.
const (
	// MaxIDLength (512) is the maximum length of a response ID and of a conversation ID, in characters.
	MaxIDLength = driver.MaxIDLength
	// MaxStatusLength (64) is the maximum length of a status, in characters.
	MaxStatusLength = driver.MaxStatusLength
	// DefaultMaxDepth (64) is the maximum number of turns in a chain if neither the options nor the store set another.
	DefaultMaxDepth = driver.DefaultMaxDepth
	// MaxDepthLimit (10,000) is the largest ResolveOptions.MaxDepth. In a cluster, the operator may have a lower limit.
	MaxDepthLimit = driver.MaxDepthLimit
	// MaxLimit (1000) is the largest Limit of ResolveOptions, ListOptions and ConversationListOptions.
	MaxLimit = driver.MaxLimit
	// MaxConversationMetadataBytes (64 KiB) is the maximum size of the metadata of a conversation.
	MaxConversationMetadataBytes = driver.MaxConversationMetadataBytes
	// MaxSummaries (256) is the maximum number of summaries of a conversation.
	MaxSummaries = driver.MaxSummaries
	// MaxHiddenItems (1000) is the maximum number of hidden items of a conversation.
	MaxHiddenItems = driver.MaxHiddenItems
	// MinReservation (1s) and MaxReservation (10m) are the bounds of ReserveOptions.Duration.
	MinReservation = driver.MinReservation
	MaxReservation = driver.MaxReservation
	// DefaultReservation is how long a place in a conversation is reserved for a turn if the options set nothing else.
	DefaultReservation = 10 * time.Second
	// MaxListedTitleLength (100) is the number of characters that a ConversationInfo has of a title.
	MaxListedTitleLength = driver.MaxListedTitleLength
	// MaxDescendants (10,000) is the maximum number of conversations that a list with ConversationListOptions.Descendants visits.
	MaxDescendants = driver.MaxDescendants
	// DefaultListLimit (100) is the number of entries on a page if ListOptions or ConversationListOptions do not set a limit.
	DefaultListLimit = driver.DefaultListLimit
)

// DefaultNamespace ("default") is the namespace of a store outside of a cluster whose URL does not specify one.
const DefaultNamespace = driver.DefaultNamespace

// The codes of errors. Those of chains and snapshots are the resolve API's.
const (
	// CodeNotFound is "session.chain.not_found": the requested turn, or one of its ancestors, does not exist.
	CodeNotFound = driver.CodeNotFound
	// CodeCycleDetected is "session.chain.cycle_detected": the chain of parents contains a cycle.
	CodeCycleDetected = driver.CodeCycleDetected
	// CodeDepthExceeded is "session.chain.depth_exceeded": the chain has more turns than allowed.
	CodeDepthExceeded = driver.CodeDepthExceeded
	// CodeUnavailable is "session.chain.unavailable": a turn of the chain is not completed. A retry can help if its status is
	// queued or in_progress.
	CodeUnavailable = driver.CodeUnavailable
	// CodeConflict is "session.store.conflict": the response ID is taken, the parent is not the expected one, or an
	// overwrite is not allowed or lost a race.
	CodeConflict = driver.CodeConflict
	// CodeInvalid is "session.store.invalid": the session or the options are not allowed. Nothing was stored.
	CodeInvalid = driver.CodeInvalid
	// CodeUnreachable is "session.store.unreachable": the store could not be reached or did not answer in time. A retry can
	// help; whether a turn was stored is unknown until the save is repeated.
	CodeUnreachable = driver.CodeUnreachable
	// CodeUnsupported is "session.store.unsupported": this kind of store does not support the operation, its schema does not
	// match this version, or its server is older; the message explains which.
	CodeUnsupported = driver.CodeUnsupported
	// CodeQuotaExceeded is "session.store.quota_exceeded": the namespace has reached its quota. Nothing was stored, and saves
	// will be rejected until turns are deleted or the quota is raised.
	CodeQuotaExceeded = driver.CodeQuotaExceeded
	// CodeUnreadable is "session.snapshot.unreadable": the stored bodies of a turn are missing, damaged, or not the JSON of
	// the Responses API.
	CodeUnreadable = driver.CodeUnreadable
	// CodeConversationNotFound is "session.conversation.not_found": the conversation does not exist.
	CodeConversationNotFound = driver.CodeConversationNotFound
	// CodeConversationLocked is "session.conversation.locked": another turn of the conversation is being made. Nothing was stored. A
	// retry can help.
	CodeConversationLocked = driver.CodeConversationLocked
	// CodeConversationArchived is "session.conversation.archived": the conversation is archived, and cannot be continued.
	CodeConversationArchived = driver.CodeConversationArchived
	// CodeConversationLimitExceeded is "session.conversation.limit_exceeded": the conversation cannot have more hidden items or summaries, or
	// has too many descendants to list.
	CodeConversationLimitExceeded = driver.CodeConversationLimitExceeded
	// CodeTooLarge is "session.snapshot.too_large": the turn exceeds the store's size limit, or the history exceeds the limit
	// for responses. Nothing was stored.
	CodeTooLarge = driver.CodeTooLarge
)

// Errors to compare with errors.Is: each matches every *Error with its code.
var (
	ErrNotFound      = driver.ErrNotFound
	ErrCycleDetected = driver.ErrCycleDetected
	ErrDepthExceeded = driver.ErrDepthExceeded
	ErrUnavailable   = driver.ErrUnavailable
	ErrConflict      = driver.ErrConflict
	ErrInvalid       = driver.ErrInvalid
	ErrUnreachable   = driver.ErrUnreachable
	ErrUnsupported   = driver.ErrUnsupported
	ErrQuotaExceeded = driver.ErrQuotaExceeded
	ErrUnreadable    = driver.ErrUnreadable
	ErrTooLarge      = driver.ErrTooLarge

	ErrConversationNotFound = driver.ErrConversationNotFound
	ErrConversationLocked   = driver.ErrConversationLocked
	ErrConversationArchived = driver.ErrConversationArchived

	ErrConversationLimitExceeded = driver.ErrConversationLimitExceeded
)

// IsRetryable reports whether the same call may succeed later.
func IsRetryable(err error) bool { return driver.IsRetryable(err) }
