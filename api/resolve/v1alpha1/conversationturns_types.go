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

	"github.com/catena-dev/catena/store/driver"
)

// ConversationTurns are a page of the turns of a conversation, without their bodies. They are read-only and read by name: the
// conversation ID, or its object name, which is that of a ResponseSession with the same ID. A name with a "." is an object name if
// a conversation has it. An ID that contains a "/" can only be read by its object name. If no turn belongs to the conversation,
// the list is empty.
//
// The turns are those of the watch of the replica that answers. A replica that has not read the sessions yet, has not received
// events of them for too long, or has not seen the requested resource version, answers 503. A session that is being deleted, or
// whose name does not follow from its response ID, is not listed.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationTurns struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the object name of the conversation and the namespace.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// conversationID is the conversation ID. It is absent if it cannot be derived from the name and no turn has it.
	// +optional
	ConversationID string `json:"conversationID,omitempty"`

	// turns are sorted by their times of creation, then by the bytes of their response IDs. Turns without a time of creation come
	// before those with one. The oldest turn is first, or the newest with order=desc.
	// +listType=atomic
	// +required
	Turns []ConversationTurn `json:"turns"`

	// next is the cursor of the next page, the `after` of the request for it. It is absent on the last page.
	// +optional
	Next string `json:"next,omitempty"`

	// count is the number of turns of the history. It is present if the parameter history is set.
	// +optional
	Count int32 `json:"count,omitempty"`

	// headResponseID is the responseID of the last turn of the history. It is absent if the history is empty, and without the parameter history.
	// +optional
	HeadResponseID string `json:"headResponseID,omitempty"`
}

// ConversationTurn is a turn of a conversation, without its bodies.
type ConversationTurn struct {
	// responseID is the spec.responseID of the ResponseSession.
	// +required
	ResponseID string `json:"responseID"`

	// previousResponseID is the spec.previousResponseID, absent if the turn is a root.
	// +optional
	PreviousResponseID string `json:"previousResponseID,omitempty"`

	// responseStatus is the spec.responseStatus, which mirrors the status of OpenAI's Response object.
	// +required
	ResponseStatus string `json:"responseStatus"`

	// createdAt is the spec.createdAt. It is absent if the session has no valid one.
	// +optional
	CreatedAt metav1.Time `json:"createdAt,omitzero"`

	// completedAt is the spec.completedAt. It is absent if the session has no valid one.
	// +optional
	CompletedAt metav1.Time `json:"completedAt,omitzero"`

	// uid, generation and resourceVersion are those of the ResponseSession.
	// +required
	UID string `json:"uid"`
	// +required
	Generation int64 `json:"generation"`
	// +required
	ResourceVersion string `json:"resourceVersion"`
}

// DefaultListLimit (100) is the number of turns in an answer without a limit.
const DefaultListLimit = driver.DefaultListLimit

// ConversationTurnsOptions are the query parameters of a request for ConversationTurns.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationTurnsOptions struct {
	metav1.TypeMeta `json:",inline"`

	// limit is the maximum number of turns in the answer, from 1 to 1000. Without it, the answer has up to 100.
	// +optional
	Limit int32 `json:"limit,omitempty"`

	// after is the `next` of the previous page. The conversation and order must be the same as for that page.
	// +optional
	After string `json:"after,omitempty"`

	// order is asc (the default) for the oldest turn first, or desc for the newest.
	// +optional
	Order string `json:"order,omitempty"`

	// history selects the turns of the history of the Conversation with this ID: the chain that ends at its head, oldest turn first, whichever
	// conversation IDs the turns have. Those that were rolled back are not part of it. The answer has every turn that was appended before the
	// request. If the Conversation does not exist, it is the error session.conversation.not_found; otherwise the errors are those of InputItems,
	// except that bodies need not be readable.
	// +optional
	History bool `json:"history,omitempty"`

	// resourceVersion asks for an answer at least as new as this resource version of a ResponseSession. Without it, a turn that
	// was saved, overwritten or deleted a moment ago may be missed until the operator's watch delivers the change.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}
