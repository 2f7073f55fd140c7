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

// InputItems is the history of a turn: the input items of every turn from the first one of the conversation to the one
// asked for, ready to be the input of the next request. It is read only, and read by name: the response ID of the turn,
// or the name of the ResponseSession that holds it. An ID that has a "/" can only be asked for by that name.
//
// It is the whole history or an error. An error is a Status whose details.causes[0] has the code as its reason and the
// response ID where it happened as its field: session.chain.not_found (404 for the turn asked for, 422 for one of its
// ancestors), session.chain.cycle_detected, session.chain.depth_exceeded and session.snapshot.unreadable (422), and
// session.chain.unavailable (409) where a turn is not completed.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type InputItems struct {
	metav1.TypeMeta `json:",inline"`

	// metadata has the name, the namespace and the UID of the ResponseSession asked for. Whoever saves the next turn
	// needs the UID for its ownerReference.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// responseID is the response ID of the turn asked for.
	// +required
	ResponseID string `json:"responseID"`

	// turns are the response IDs of all turns of the chain, oldest first. The last one is responseID. A page has all
	// of them too.
	// +listType=atomic
	// +required
	Turns []string `json:"turns"`

	// input are the input items as raw JSON objects, each byte for byte as it is stored: for each turn its instructions
	// as a system message, the items of its input and those of its output. They are in the order of the conversation,
	// or the reverse where that was asked for. The field is not named items because Kubernetes clients take every
	// object with a list of that name for a list of objects.
	// +listType=atomic
	// +required
	Input []runtime.RawExtension `json:"input"`

	// next is the cursor of the next page, the `after` of the request for it. It is absent on the last page, and where
	// no limit was given.
	// +optional
	Next string `json:"next,omitempty"`
}

// What InputItemsOptions.Instructions can be.
const (
	// InstructionsAll puts every turn's instructions before its input.
	InstructionsAll = "All"
	// InstructionsLast leaves out all instructions but those of the turn asked for.
	InstructionsLast = "Last"
	// InstructionsOmit leaves out all instructions.
	InstructionsOmit = "Omit"
)

// What InputItemsOptions.Order can be.
const (
	// OrderAscending has the oldest item first.
	OrderAscending = "asc"
	// OrderDescending has the newest item first.
	OrderDescending = "desc"
)

// MaxLimit is the largest InputItemsOptions.Limit.
const MaxLimit = 1000

// InputItemsOptions are the query parameters of a request for InputItems. The zero value asks for the whole history.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type InputItemsOptions struct {
	metav1.TypeMeta `json:",inline"`

	// maxDepth is how many turns the chain may have; a longer one is answered with session.chain.depth_exceeded, and
	// so is every chain where it is 0. The operator sets the default, 64 unless told otherwise, and the largest value
	// that may be asked for.
	// +optional
	MaxDepth *int32 `json:"maxDepth,omitempty"`

	// includeIncomplete lets turns pass that are not completed, with the items that they have.
	// +optional
	IncludeIncomplete bool `json:"includeIncomplete,omitempty"`

	// instructions says which turns' instructions are among the items: All, the default, has every turn's; Last only
	// those of the turn asked for; Omit none.
	// +optional
	Instructions string `json:"instructions,omitempty"`

	// limit is the largest number of items in the answer, from 1 to 1000. Without it, the answer has all of them.
	// +optional
	Limit int32 `json:"limit,omitempty"`

	// after is the `next` of the page before, and needs a limit. The turn asked for, order, instructions and
	// includeIncomplete must be the same as for that page.
	// +optional
	After string `json:"after,omitempty"`

	// order is asc, the default, for the oldest item first, or desc for the newest.
	// +optional
	Order string `json:"order,omitempty"`

	// resourceVersion asks for an answer that is at least as new as this resource version of a ResponseSession. Without
	// it, an overwrite of a turn may be missed for as long as the watch takes to deliver it; a new turn never is.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// SwaggerDoc describes the query parameters in the OpenAPI document.
func (InputItemsOptions) SwaggerDoc() map[string]string {
	return map[string]string{
		"maxDepth":          "How many turns the chain may have; a longer one is an error. The operator sets the default and the largest value.",
		"includeIncomplete": "Let turns pass that are not completed, with the items that they have.",
		"instructions":      "Which turns' instructions are among the items: All (the default), Last for those of the turn asked for, or Omit.",
		"limit":             "The largest number of items in the answer, from 1 to 1000. Without it, the answer has all of them.",
		"after":             "The `next` of the page before. It needs a limit, and the options of that page.",
		"order":             "asc (the default) for the oldest item first, or desc for the newest.",
		"resourceVersion":   "Answer at least as new as this resource version of a ResponseSession.",
	}
}
