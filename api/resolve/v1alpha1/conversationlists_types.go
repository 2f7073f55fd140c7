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
)

// AllConversations is the name of the only ConversationLists of a namespace.
const AllConversations = "all"

// ConversationLists are a page of the Conversations of a namespace. They are read-only, and read by the name "all".
//
// The conversations are those of the watch of the replica that answers. A replica that has not read the Conversations yet, has not
// received events of them for too long, or has not seen the requested resource version, answers 503. A Conversation that is being
// deleted, or whose name does not follow from its conversation ID, is not listed.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationLists struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the name and the namespace.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// conversations are sorted by the requested time, then by the bytes of their IDs. The newest is first, or the oldest with order=asc.
	// +listType=atomic
	// +required
	Conversations []ListedConversation `json:"conversations"`

	// next is the cursor of the next page, the `after` of the request for it. It is absent on the last page.
	// +optional
	Next string `json:"next,omitempty"`
}

// ListedConversation is what a list has of a Conversation.
type ListedConversation struct {
	// conversationID is the spec.conversationID.
	// +required
	ConversationID string `json:"conversationID"`

	// userID is the spec.userID.
	// +optional
	UserID string `json:"userID,omitempty"`

	// title has the first 100 characters of the spec.title.
	// +optional
	Title string `json:"title,omitempty"`

	// state is the spec.state.
	// +required
	State string `json:"state"`

	// parentConversationID is the spec.parentConversationID.
	// +optional
	ParentConversationID string `json:"parentConversationID,omitempty"`

	// headResponseID is the spec.headResponseID.
	// +optional
	HeadResponseID string `json:"headResponseID,omitempty"`

	// createdAt is when the Conversation was created.
	// +required
	CreatedAt metav1.Time `json:"createdAt"`

	// updatedAt is when something other than its status was last changed.
	// +required
	UpdatedAt metav1.Time `json:"updatedAt"`

	// lastActivityAt is when its last turn was stored, as of the status, or when the Conversation was created if that is later.
	// +required
	LastActivityAt metav1.Time `json:"lastActivityAt"`
}

// ConversationListsOptions are the query parameters of a request for ConversationLists.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationListsOptions struct {
	metav1.TypeMeta `json:",inline"`

	// userID selects the conversations of a user.
	// +optional
	UserID string `json:"userID,omitempty"`

	// state selects conversations in one or more states, separated by commas: Active, Archived, Deleting. Without it, the answer has
	// those that are Active.
	// +optional
	State []string `json:"state,omitempty"`

	// parentConversationID selects the conversations with this spec.parentConversationID.
	// +optional
	ParentConversationID string `json:"parentConversationID,omitempty"`

	// descendants also selects the conversations below those of the parentConversationID, at any depth. If there are more than 10,000, the
	// request fails.
	// +optional
	Descendants bool `json:"descendants,omitempty"`

	// sort is the time by which conversations are sorted: created (the default), updated, or activity.
	// +optional
	Sort string `json:"sort,omitempty"`

	// order is desc (the default) for the newest conversation first, or asc for the oldest.
	// +optional
	Order string `json:"order,omitempty"`

	// limit is the maximum number of conversations in the answer, from 1 to 1000. Without it, the answer has up to 100.
	// +optional
	Limit int32 `json:"limit,omitempty"`

	// after is the `next` of the previous page. All other parameters except limit and resourceVersion must be the same as for that page.
	// +optional
	After string `json:"after,omitempty"`

	// resourceVersion asks for an answer at least as new as this resource version of a Conversation. Without it, one that was created,
	// changed or deleted a moment ago may be missed until the operator's watch delivers the change.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}
