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

// ConversationSummaryKind is the kind of ConversationSummaries.
const ConversationSummaryKind = "ConversationSummary"

// ConversationSummarySpec is a text that takes the place of consecutive turns.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf && oldSelf == self",message="a summary must not change: delete it and create another one"
// +kubebuilder:validation:XValidation:rule="self.endTurn > self.startTurn",message="`endTurn` must be greater than `startTurn`"
type ConversationSummarySpec struct {
	// conversationID is the conversationID of the Conversation.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	ConversationID string `json:"conversationID,omitempty"`

	// startTurn is the number of the first turn that is summarized. The first turn of a conversation has the number 0.
	// +kubebuilder:validation:Minimum=0
	// +required
	StartTurn int32 `json:"startTurn"`

	// endTurn is the number of the turn after the last one that is summarized.
	// +kubebuilder:validation:Minimum=1
	// +required
	EndTurn int32 `json:"endTurn,omitempty"`

	// content is the summary.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +required
	Content string `json:"content,omitempty"`

	// tokenCount is the number of tokens of the content. It is absent if unknown.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TokenCount int64 `json:"tokenCount,omitempty"`

	// createdAt is when the summary was made, in RFC 3339 with an upper-case T and Z.
	// +optional
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
}

// ConversationSummary is a summary of consecutive turns of a Conversation, which takes their place in the context of a model. It never
// changes. It counts if its turns are among spec.summaries of the Conversation. Its ownerReference to the Conversation makes garbage
// collection delete it with that.
//
// The name is that of the Conversation, "-", startTurn, "-" and endTurn, so that there is only one summary of the same turns. If the name of
// the Conversation has more than 231 characters, the "sha256." form is used instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=convsum,categories=catena
// +kubebuilder:printcolumn:name="Conversation",type=string,JSONPath=`.spec.conversationID`
// +kubebuilder:printcolumn:name="Start",type=integer,JSONPath=`.spec.startTurn`
// +kubebuilder:printcolumn:name="End",type=integer,JSONPath=`.spec.endTurn`
// +kubebuilder:printcolumn:name="Tokens",type=integer,JSONPath=`.spec.tokenCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.conversationID`
// +kubebuilder:validation:XValidation:rule="self.spec.conversationID.size() <= 231 && !self.spec.conversationID.startsWith('sha256_') && self.spec.conversationID.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(_[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') ? self.metadata.name == self.spec.conversationID.replace('_', '.') + self.metadata.name.find('-[0-9]+-[0-9]+$') : self.metadata.name.matches('^sha256[.][a-z2-7]{52}-[0-9]+-[0-9]+$')",message="`metadata.name` must begin with that of the Conversation, in the \"sha256.\" form if it has more than 231 characters"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('-(0|[1-9][0-9]{0,9})-[1-9][0-9]{0,9}$') && int(self.metadata.name.find('[0-9]+-[0-9]+$').find('^[0-9]+')) == self.spec.startTurn && int(self.metadata.name.find('[0-9]+$')) == self.spec.endTurn",message="`metadata.name` must end with \"-\", `startTurn`, \"-\" and `endTurn`"
type ConversationSummary struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the summary.
	// +required
	Spec ConversationSummarySpec `json:"spec,omitzero"`
}

// ConversationSummaryList is a list of ConversationSummaries.
//
// +kubebuilder:object:root=true
type ConversationSummaryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConversationSummary `json:"items"`
}
