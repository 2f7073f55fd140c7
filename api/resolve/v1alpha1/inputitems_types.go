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

	"github.com/catena-dev/catena/store/driver"
)

// CauseReadFailed is the cause of a Status 503 or 504 if the operator could not read the sessions. Another request may read a whole chain
// again, so retryAfterSeconds is not set, and clients should wait longer before they retry.
const CauseReadFailed metav1.CauseType = "ReadFailed"

// InputItems is the history of a turn: the input items of every turn of its chain, ready to be the input of the next
// request. It is read-only and read by name: the response ID of the turn, or the name of its ResponseSession. An ID that contains a "/" can only be read by the name of its ResponseSession.
//
// It is the whole history or an error. An error is a Status whose details.causes[0] has the code as its reason and the
// response ID at which it occurred as its field: session.chain.not_found (404 for the requested turn, 422 for one of its
// ancestors), session.chain.cycle_detected, session.chain.depth_exceeded and session.snapshot.unreadable (422), and
// session.chain.unavailable (409) if a turn is not completed.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type InputItems struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the name, the namespace and the UID of the requested ResponseSession. The UID is needed for the
	// ownerReference of the next turn.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// responseID is the response ID of the requested turn.
	// +required
	ResponseID string `json:"responseID"`

	HistoryItems `json:",inline"`
}

// HistoryItems are the part that InputItems and ConversationItems have in common.
type HistoryItems struct {
	// turns are the response IDs of all turns of the chain, or of the last ones, oldest first, also on a page. The last one is responseID.
	// +listType=atomic
	// +required
	Turns []string `json:"turns"`

	// previousResponseID is the parent of the first of the turns. It is absent unless the parameter last leaves turns out.
	// +optional
	PreviousResponseID string `json:"previousResponseID,omitempty"`

	// input are the input items as raw JSON objects, each byte for byte as it is stored: for each turn its instructions
	// as a system message, the items of its input, and those of its output. The oldest item is first,
	// or the newest with order=desc. The field is not named items because Kubernetes clients treat every object
	// with a list of that name as a list of objects.
	// +listType=atomic
	// +required
	Input []runtime.RawExtension `json:"input"`

	// origins say which turns the items of input belong to, in their order. They are present if the parameter origins is set.
	// +listType=atomic
	// +optional
	Origins []ItemsOrigin `json:"origins,omitempty"`

	// digests are the digests of the turns, in their order, also on a page. They are present if the parameter digests is set. The digest of a
	// turn is sha256: and, in lower-case hex, the SHA-256 of the JSON list of all its entries, whichever of them the request selects: its
	// instructions as a system message, if it has any, and its items, separated by commas without spaces.
	// +listType=atomic
	// +optional
	Digests []string `json:"digests,omitempty"`

	// next is the cursor of the next page, the `after` of the request for it. It is absent on the last page, and if no
	// limit was given.
	// +optional
	Next string `json:"next,omitempty"`
}

// ConversationItems are the history of a conversation: InputItems of the last turn of its history, without the hidden items. They are
// read-only and read by name: the conversation ID, or the object name of the Conversation. A name with a "." is an object name if a conversation
// has it. An ID that contains a "/" can only be read by its object name. The parameters are those of InputItems. A page can have fewer items
// than the limit, and its cursor is valid for as long as its last item is part of the history.
//
// If the turn of the head is not stored because its place is only reserved, the history is that of the base. The answer has every turn that was
// appended before the request. If the Conversation does not exist, it is the error session.conversation.not_found (404); otherwise the errors are
// those of InputItems: session.chain.not_found (404) if a fork or a rollback set the head, and its turn was deleted. If it was appended, the history
// is that of the base.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationItems struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the name, the namespace and the UID of the Conversation.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// conversationID is the conversation ID.
	// +required
	ConversationID string `json:"conversationID"`

	// responseID is the response ID of the last turn of the history. It is absent if the conversation has no turns.
	// +optional
	ResponseID string `json:"responseID,omitempty"`

	HistoryItems `json:",inline"`
}

// ItemsOrigin is the origin of consecutive items, which belong to one turn. Within a turn, items are numbered from 0: those of the
// request's input, then those of the response's output.
type ItemsOrigin struct {
	// responseID is the response ID of the turn.
	// +required
	ResponseID string `json:"responseID"`

	// first is the number of the first of the items, in the order of the answer. Instructions are not an item of a turn, and have the
	// number -1.
	// +required
	First int32 `json:"first"`

	// count is how many items there are. Each has the next higher number, or the next lower one with order=desc.
	// +required
	Count int32 `json:"count"`
}

// The values of InputItemsOptions.Instructions.
const (
	// InstructionsAll ("All") puts every turn's instructions before its input.
	InstructionsAll = driver.InstructionsAll
	// InstructionsLast ("Last") omits all instructions except those of the requested turn.
	InstructionsLast = driver.InstructionsLast
	// InstructionsOmit ("Omit") omits all instructions.
	InstructionsOmit = driver.InstructionsOmit
)

// The values of InputItemsOptions.Order.
const (
	OrderAscending  = driver.OrderAscending  // "asc": the oldest item first
	OrderDescending = driver.OrderDescending // "desc": the newest item first
)

// MaxLimit (1000) is the largest InputItemsOptions.Limit.
const MaxLimit = driver.MaxLimit

// InputItemsOptions are the query parameters of a request for InputItems. The zero value asks for the whole history.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type InputItemsOptions struct {
	metav1.TypeMeta `json:",inline"`

	// maxDepth is the maximum number of turns in the chain; a longer one is the error session.chain.depth_exceeded, and
	// with 0 every chain is. The operator sets the default and the largest value, which is at most 10000.
	// +optional
	MaxDepth *int32 `json:"maxDepth,omitempty"`

	// last is the number of turns in the answer, from 1 to 10000; without it, the answer has all of them. What is before the last turns is
	// neither read nor judged. If it is larger than the default of maxDepth, it replaces that, up to the operator's largest value.
	// +optional
	Last int32 `json:"last,omitempty"`

	// continueIncomplete accepts turns whose status is incomplete, so that a response that was cut off can be continued.
	// +optional
	ContinueIncomplete bool `json:"continueIncomplete,omitempty"`

	// includeIncomplete accepts turns that are not completed, whatever their status is, with the items that they have.
	// +optional
	IncludeIncomplete bool `json:"includeIncomplete,omitempty"`

	// origins adds the origins of the items to the answer.
	// +optional
	Origins bool `json:"origins,omitempty"`

	// digests adds the digests of the turns to the answer.
	// +optional
	Digests bool `json:"digests,omitempty"`

	// instructions selects whose instructions are among the items: All (the default) of every turn, Last only of the
	// requested turn, Omit none.
	// +optional
	Instructions string `json:"instructions,omitempty"`

	// limit is the maximum number of items in the answer, from 1 to 1000. Without it, the answer has all of them.
	// +optional
	Limit int32 `json:"limit,omitempty"`

	// after is the `next` of the previous page, and requires a limit. The requested turn, order, instructions and
	// includeIncomplete must be the same as for that page.
	// +optional
	After string `json:"after,omitempty"`

	// order is asc (the default) for the oldest item first, or desc for the newest.
	// +optional
	Order string `json:"order,omitempty"`

	// resourceVersion asks for an answer at least as new as this resource version of a ResponseSession. Without it, an
	// overwrite may be missed until the operator's watch delivers it; a new turn never is.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}
