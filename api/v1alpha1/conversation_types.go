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

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConversationKind is the kind of Conversations.
const ConversationKind = "Conversation"

// The values of spec.state of a Conversation.
const (
	// ConversationStateActive: the conversation can be continued.
	ConversationStateActive = "Active"
	// ConversationStateArchived: the conversation is kept, but not continued.
	ConversationStateArchived = "Archived"
	// ConversationStateDeleting: the conversation is being deleted with its turns.
	ConversationStateDeleting = "Deleting"
)

// ConditionHeadResolved indicates whether the history of a Conversation resolves with the default options. As long as the turn for which the
// head is reserved is not stored, it is False if the chain of the base is broken, and otherwise Unknown.
//
// Possible reasons for True: Resolved, NoTurns.
// Possible reasons for Unknown: TurnPending, HeadReserved.
// Possible reasons for False: ParentNotFound, CycleDetected, DepthExceeded, TurnIncomplete, TurnNotCompleted,
// SnapshotUnreadable, NameMismatch.
const ConditionHeadResolved = "HeadResolved"

// The reasons of the HeadResolved condition, besides those of ChainValid. ParentNotFound also means that the head itself is not stored, and
// NameMismatch that the name of the Conversation does not follow from its conversationID. All others are about the chain of the head.
const (
	// ReasonNoTurns: the conversation has no head, and so its history is empty.
	ReasonNoTurns = "NoTurns"
	// ReasonHeadReserved: the turn for which the head is reserved is not stored as the next turn yet.
	ReasonHeadReserved = "HeadReserved"
)

// ConversationSpec names the chain of turns that ends at a head.
//
// +kubebuilder:validation:XValidation:rule="self.conversationID == oldSelf.conversationID",message="`conversationID` must not change: create another conversation"
// +kubebuilder:validation:XValidation:rule="has(self.forkedFrom) == has(oldSelf.forkedFrom) && (!has(self.forkedFrom) || self.forkedFrom == oldSelf.forkedFrom && oldSelf.forkedFrom == self.forkedFrom)",message="`forkedFrom` must not change: it is fixed when the conversation is created"
// +kubebuilder:validation:XValidation:rule="has(self.parentConversationID) == has(oldSelf.parentConversationID) && (!has(self.parentConversationID) || self.parentConversationID == oldSelf.parentConversationID)",message="`parentConversationID` must not change: it is fixed when the conversation is created"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.state) || oldSelf.state != 'Deleting' || has(self.state) && self.state == 'Deleting'",message="`state` must remain Deleting: some of the turns may be gone"
// +kubebuilder:validation:XValidation:rule="!has(self.reservation) || has(self.headResponseID)",message="`headResponseID` must be set if `reservation` is: it names the turn for which the place is reserved"
// +kubebuilder:validation:XValidation:rule="!has(self.baseResponseID) || has(self.reservation)",message="`baseResponseID` must be absent without a `reservation`"
// +kubebuilder:validation:XValidation:rule="!has(self.reservation) || !has(oldSelf.reservation) || self.headResponseID == oldSelf.headResponseID || self.reservation != oldSelf.reservation || has(self.baseResponseID) && self.baseResponseID == oldSelf.headResponseID",message="`headResponseID` must not change while the `reservation` stays, unless `baseResponseID` becomes the previous head: to go back to a stored turn, remove `baseResponseID` and `reservation`"
type ConversationSpec struct {
	// conversationID is the ID of the conversation. It cannot change, and it determines metadata.name in the same way as the
	// responseID of a ResponseSession does: the ID with "_" replaced by "." if that is a DNS subdomain name and the ID has no "." and
	// does not start with "sha256_", otherwise "sha256." and the lower-case base32 SHA-256 of the ID.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	ConversationID string `json:"conversationID,omitempty"`

	// userID is the ID of the user that the conversation belongs to. Catena lets clients select by it, but does not interpret it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	UserID string `json:"userID,omitempty"`

	// title is for people. Catena does not interpret it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Title string `json:"title,omitempty"`

	// systemPrompt is for the gateway. Catena does not interpret it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	SystemPrompt string `json:"systemPrompt,omitempty"`

	// metadata is any JSON object that the gateway wants to keep with the conversation. Catena does not interpret it. Clients should
	// not store more than 64 KiB.
	// +structType=atomic
	// +optional
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`

	// state is Active, Archived for a conversation that must not be continued, or Deleting for one that is being deleted with its turns.
	// The operator deletes a conversation that is Deleting, after those turns with its conversationID that nothing else needs: no turn
	// that stays continues them, and no other conversation ends at them. It remains Deleting.
	// +kubebuilder:validation:Enum=Active;Archived;Deleting
	// +kubebuilder:default=Active
	// +optional
	State string `json:"state,omitempty"`

	// headResponseID is the responseID of the last turn, in the same namespace, at which the history ends, or of the turn for which
	// this place is reserved. It is absent if the conversation has no turns.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	HeadResponseID string `json:"headResponseID,omitempty"`

	// baseResponseID is the responseID of the turn before the head. As long as the head's turn is not stored, the history ends here.
	// It is absent without a reservation, and if the reserved turn is the first one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	BaseResponseID string `json:"baseResponseID,omitempty"`

	// reservation is the one with which the head has got its place. It ends when the head's turn is stored, and is not removed then.
	// +optional
	Reservation *Reservation `json:"reservation,omitempty"`

	// forkedFrom is where the conversation was forked from. It cannot change.
	// +optional
	ForkedFrom *Fork `json:"forkedFrom,omitempty"`

	// parentConversationID is the ID of the conversation on whose behalf this one is held, as by a sub-agent. It need not exist. It
	// cannot change.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ParentConversationID string `json:"parentConversationID,omitempty"`

	// hiddenItems are items of turns that are left out of the history of this conversation. They stay part of their turns.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	HiddenItems []HiddenItem `json:"hiddenItems,omitempty"`

	// summaries are the turns that the ConversationSummaries of this conversation are about, each as startTurn, "-" and endTurn, in any
	// order. A ConversationSummary whose turns are not among them does not count. One whose turns are among them may not exist: its turns are
	// entered before it is created, and can stay after it is deleted.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=21
	// +kubebuilder:validation:items:Pattern=`^(0|[1-9][0-9]{0,9})-[1-9][0-9]{0,9}$`
	// +listType=atomic
	// +optional
	Summaries []string `json:"summaries,omitempty"`
}

// HiddenItem is an item of a turn.
type HiddenItem struct {
	// responseID is the responseID of the turn.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	ResponseID string `json:"responseID,omitempty"`

	// number is the number of the item in its turn. Items are numbered from 0: those of the request's input, then those of the
	// response's output.
	// +kubebuilder:validation:Minimum=0
	// +required
	Number int32 `json:"number"`
}

// Reservation reserves the place after the last turn of a conversation for a turn that is not stored yet.
type Reservation struct {
	// durationSeconds is how long others must see the same reservation before they may take over the place.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	// +required
	DurationSeconds int32 `json:"durationSeconds,omitempty"`

	// renewals grows by one with each renewal, which begins the duration again. It begins with a random number, so that no two
	// reservations are equal.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Renewals int64 `json:"renewals,omitempty"`
}

// Fork is the turn at which a conversation was forked.
type Fork struct {
	// conversationID is the ID of the other conversation.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	ConversationID string `json:"conversationID,omitempty"`

	// responseID is the responseID of its last turn that both have. It is absent if it had no turns.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ResponseID string `json:"responseID,omitempty"`
}

// ConversationStatus is what follows from the turns of a conversation.
type ConversationStatus struct {
	// conditions of the conversation. HeadResolved indicates whether its history resolves with the default options; its reason is the
	// cause if it does not.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the status is about.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// turns counts the turns in the history. It is absent from an empty history, and from one whose root cannot be reached.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Turns int32 `json:"turns,omitempty"`

	// brokenAt is the response ID at which the history breaks, as in the status of a ResponseSession. It is absent if the history resolves,
	// and with the reasons HeadReserved and NameMismatch.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	BrokenAt string `json:"brokenAt,omitempty"`

	// lastActivityTime is when the last turn of the history was stored. It stays when turns that the operator has counted are rolled back. A
	// fork may begin with a turn that is older than itself.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`

	// lastUpdateTime is when the conversation itself was last changed. If what was changed was only removed, it is when the operator has
	// noticed it.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// historyRevision identifies the turns that items, usage, model and preview are about, and the hidden items. It changes with each of them.
	// These are usually the turns of the history. They remain as they were while the history does not resolve, unless only because it is too deep or
	// has incomplete turns, and follow that of a long history in steps. A turn that is overwritten after it had ended as completed or incomplete
	// counts as it was then.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	HistoryRevision string `json:"historyRevision,omitempty"`

	// items counts the items of the turns, those of their inputs and those of their outputs, hidden ones included. A turn that is too
	// large to be read at all counts nothing, here and in the usage.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Items int64 `json:"items,omitempty"`

	// usage is the number of tokens that the turns have used. It is absent if none of them reports it.
	// +optional
	Usage *ConversationUsage `json:"usage,omitempty"`

	// model is the model of the last turn that names one: that of the response or, without one, of the request.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Model string `json:"model,omitempty"`

	// preview is the beginning of the text of the first user message that is not hidden. It is removed when a turn of the history was deleted.
	// +kubebuilder:validation:MaxLength=100
	// +optional
	Preview string `json:"preview,omitempty"`
}

// ConversationUsage is the number of tokens that the turns of a history have used, as far as their responses report it.
type ConversationUsage struct {
	// inputTokens is the sum of the input tokens. A turn's input includes the history before it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InputTokens int64 `json:"inputTokens,omitempty"`

	// outputTokens is the sum of the output tokens.
	// +kubebuilder:validation:Minimum=0
	// +optional
	OutputTokens int64 `json:"outputTokens,omitempty"`

	// totalTokens is the sum of the total tokens.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TotalTokens int64 `json:"totalTokens,omitempty"`
}

// Conversation is a name for the chain of turns that ends at its head. The turns are ResponseSessions of the same namespace. Several
// conversations can share turns. No turn is changed or deleted with a Conversation, unless it was in the state Deleting.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=conv,categories=catena
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.userID`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Turns",type=integer,JSONPath=`.status.turns`
// +kubebuilder:printcolumn:name="Head",type=string,JSONPath=`.spec.headResponseID`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.conditions[?(@.type=="HeadResolved")].reason`
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.spec.title`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Parent",type=string,priority=1,JSONPath=`.spec.parentConversationID`
// +kubebuilder:printcolumn:name="Forked-From",type=string,priority=1,JSONPath=`.spec.forkedFrom.conversationID`
// +kubebuilder:selectablefield:JSONPath=`.spec.conversationID`
// +kubebuilder:selectablefield:JSONPath=`.spec.userID`
// +kubebuilder:selectablefield:JSONPath=`.spec.state`
// +kubebuilder:selectablefield:JSONPath=`.spec.parentConversationID`
// +kubebuilder:selectablefield:JSONPath=`.spec.headResponseID`
// +kubebuilder:validation:XValidation:rule="self.spec.conversationID.size() <= 253 && !self.spec.conversationID.startsWith('sha256_') && self.spec.conversationID.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(_[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') ? self.metadata.name == self.spec.conversationID.replace('_', '.') : self.metadata.name.matches('^sha256[.][a-z2-7]{52}$')",message="`metadata.name` must be derived from `spec.conversationID`: the ID with \"_\" replaced by \".\" if that is a DNS subdomain name and the ID has no \".\" and does not start with \"sha256_\", otherwise \"sha256.\" and the lower-case base32 SHA-256 of the ID without padding"
type Conversation struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the conversation without its turns.
	// +required
	Spec ConversationSpec `json:"spec,omitzero"`

	// status is what follows from the turns.
	// +optional
	Status ConversationStatus `json:"status,omitzero"`
}

// ConversationList is a list of Conversations.
//
// +kubebuilder:object:root=true
type ConversationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Conversation `json:"items"`
}
