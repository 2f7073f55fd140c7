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

// SessionVerdict is the verdict of the operator on the chain of one ResponseSession, without its bodies. It is for users
// who may see that a session exists and whether its chain is intact, but not its contents. It is read-only, and read by the
// name of its ResponseSession.
//
// Verdicts are those of the replica that answers, as new as its watch of the sessions. A replica that has not read the
// sessions yet, or has not received events of them for too long, answers 503. A session that is being deleted has no verdict.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SessionVerdict struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the name, the namespace, the UID and the creationTimestamp of the ResponseSession.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// responseID is the spec.responseID of the ResponseSession.
	// +required
	ResponseID string `json:"responseID"`

	// previousResponseID is the spec.previousResponseID, absent if the turn is a root.
	// +optional
	PreviousResponseID string `json:"previousResponseID,omitempty"`

	// responseStatus is the spec.responseStatus, which mirrors the status of OpenAI's Response object.
	// +required
	ResponseStatus string `json:"responseStatus"`

	// chainValid is the status of the condition ChainValid: True, False or Unknown.
	// +required
	ChainValid metav1.ConditionStatus `json:"chainValid"`

	// reason is the reason of the condition ChainValid, such as Resolved or ParentNotFound.
	// +required
	Reason string `json:"reason"`

	// depth is the number of turns from the root to this one, both counted. It is absent while no root is reached.
	// +optional
	Depth int32 `json:"depth,omitempty"`

	// rootResponseID is the responseID of the root, the first turn of the chain. It is absent while no root is reached.
	// +optional
	RootResponseID string `json:"rootResponseID,omitempty"`

	// brokenAt is the response ID at which the chain breaks. It is absent if the chain resolves.
	// +optional
	BrokenAt string `json:"brokenAt,omitempty"`
}

// MaxVerdicts (10000) is the largest number of verdicts in one answer. A list of more must be read in pages, with a limit. A page has fewer than
// the limit if the IDs in it are long.
const MaxVerdicts = 10_000

// SessionVerdictList is a list of verdicts, sorted by namespace and name.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SessionVerdictList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the token with which the list continues, if it is a page and not the last one.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the verdicts.
	// +listType=atomic
	// +required
	Items []SessionVerdict `json:"items"`
}
