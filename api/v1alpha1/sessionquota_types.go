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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SessionQuotaKind is the kind of SessionQuotas.
const SessionQuotaKind = "SessionQuota"

// ConditionExceeded, on a SessionQuota, indicates whether its limit is reached: the API server then refuses to create
// sessions, chunks, conversations and summaries in the namespace, and to change the specs of the first two.
//
// Possible reasons for True: LimitReached.
// Possible reasons for False: WithinLimit, NoLimit.
const ConditionExceeded = "Exceeded"

// The reasons of the Exceeded condition.
const (
	// ReasonLimitReached: the namespace stores at least spec.hard.bytes.
	ReasonLimitReached = "LimitReached"
	// ReasonWithinLimit: the namespace stores less than spec.hard.bytes.
	ReasonWithinLimit = "WithinLimit"
	// ReasonNoLimit: spec.hard.bytes is not set.
	ReasonNoLimit = "NoLimit"
)

// SessionQuotaSpec limits the usage of a namespace.
type SessionQuotaSpec struct {
	// hard is the limit. Without it, the namespace's usage is only counted.
	// +optional
	Hard SessionQuotaLimit `json:"hard,omitzero"`
}

// SessionQuotaLimit is the limit of a SessionQuota.
type SessionQuotaLimit struct {
	// bytes is the limit of status.used.bytes, such as 10Gi. Once it is reached, the API server refuses new sessions, chunks,
	// conversations and summaries, and changes of the specs of the first two, until sessions were deleted or the limit was raised. Without
	// it, there is no limit.
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? size(self) <= 32 && isQuantity(self) && sign(quantity(self)) >= 0 && quantity(self).isLessThan(quantity('8Ei')) : self >= 0",message="must be a quantity of at most 32 characters, not negative and less than 8Ei"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`
}

// SessionUsage is the usage of a namespace: the number and the size of the objects and snapshots that it stores.
type SessionUsage struct {
	// bytes is the size of all ResponseSessions, SnapshotChunks, Conversations and ConversationSummaries as the API server sends them, metadata
	// included, and of the snapshots in a bucket that sessions refer to. It is rounded up to a multiple of 1Ki.
	// +kubebuilder:validation:XValidation:rule="type(self) != string || size(self) <= 32 && isQuantity(self)",message="must be a quantity of at most 32 characters"
	// +required
	Bytes resource.Quantity `json:"bytes"`

	// sessions is the number of ResponseSessions, each of them one turn.
	// +kubebuilder:validation:Minimum=0
	// +required
	Sessions int64 `json:"sessions"`

	// snapshotChunks is the number of SnapshotChunks, including those that no session refers to.
	// +kubebuilder:validation:Minimum=0
	// +required
	SnapshotChunks int64 `json:"snapshotChunks"`
}

// SessionQuotaStatus is the usage that the operator has counted.
type SessionQuotaStatus struct {
	// conditions of the quota. Exceeded indicates whether the limit is reached.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the Exceeded condition is about.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// used is the usage of the namespace. It is a few seconds old: see the operator's --session-quota-interval.
	// +optional
	Used *SessionUsage `json:"used,omitempty"`
}

// SessionQuota counts the usage of a namespace and, if spec.hard.bytes is set, limits it. If a namespace has several, each is
// a limit. ResourceQuota limits the number of objects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=squota,categories=catena
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used.bytes`
// +kubebuilder:printcolumn:name="Hard",type=string,JSONPath=`.spec.hard.bytes`
// +kubebuilder:printcolumn:name="Exceeded",type=string,JSONPath=`.status.conditions[?(@.type=="Exceeded")].status`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.used.sessions`
// +kubebuilder:printcolumn:name="Chunks",type=integer,JSONPath=`.status.used.snapshotChunks`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SessionQuota struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec has the limit.
	// +optional
	Spec SessionQuotaSpec `json:"spec,omitzero"`

	// status has the usage.
	// +optional
	Status SessionQuotaStatus `json:"status,omitzero"`
}

// SessionQuotaList is a list of SessionQuotas.
//
// +kubebuilder:object:root=true
type SessionQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SessionQuota `json:"items"`
}

// IsExceeded reports whether the usage that the operator has counted reaches the limit. The admission policy
// quota.sessions.catena.dev refuses writes under the same condition.
func (q *SessionQuota) IsExceeded() bool {
	return q.Spec.Hard.Bytes != nil && q.Status.Used != nil && q.Status.Used.Bytes.Cmp(*q.Spec.Hard.Bytes) >= 0
}
