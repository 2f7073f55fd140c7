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

// ConversationVerdict is the verdict of the operator on the history of one Conversation, without any text or the user. It is for users
// who may see that a conversation exists and whether its history resolves, but not its contents. It is read-only, and read by the name
// of its Conversation.
//
// Verdicts are those of the replica that answers, as new as its watches of the Conversations and the sessions. A replica that has not read
// both yet, or has not received events of one of them for too long, answers 503. The watches are independent: while that of the sessions lags
// behind, a new turn seems not to be stored, and the reason can be ParentNotFound for a moment. A Conversation with a
// metadata.deletionTimestamp has no verdict.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationVerdict struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the name, the namespace, the UID and the creationTimestamp of the Conversation.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// conversationID is the spec.conversationID of the Conversation.
	// +required
	ConversationID string `json:"conversationID"`

	// state is the spec.state: Active, Archived or Deleting.
	// +required
	State string `json:"state"`

	// headResponseID is the spec.headResponseID, absent if the conversation has no turns.
	// +optional
	HeadResponseID string `json:"headResponseID,omitempty"`

	// turns counts the turns in the history. It is absent if the history is empty, if its root cannot be reached, or if the name of the
	// Conversation does not follow from its conversationID.
	// +optional
	Turns int32 `json:"turns,omitempty"`

	// headResolved is the status of the condition HeadResolved: True, False or Unknown.
	// +required
	HeadResolved metav1.ConditionStatus `json:"headResolved"`

	// reason is the reason of the condition HeadResolved, such as Resolved or ParentNotFound.
	// +required
	Reason string `json:"reason"`
}

// ConversationVerdictList is a list of verdicts, sorted by namespace and name.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ConversationVerdictList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the token with which the list continues, if it is a page and not the last one.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the verdicts.
	// +listType=atomic
	// +required
	Items []ConversationVerdict `json:"items"`
}
