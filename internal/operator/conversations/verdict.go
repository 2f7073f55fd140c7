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

package conversations

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/store/driver"
)

// Verdict is whether the history of a conversation resolves. The status of the object and the resolve API are derived from it.
type Verdict struct {
	// Status and Reason are those of the HeadResolved condition.
	Status metav1.ConditionStatus
	Reason string
	// BrokenAt is the response ID at which the history breaks. It is empty if it does not, and for the reasons HeadReserved and NameMismatch.
	BrokenAt string
	// Turns is the number of turns in the history, 0 if its root cannot be reached.
	Turns int
	// Lineage identifies the turns of the history: see chain.Verdict. It is 0 if the history cannot be read, because it is empty, pending,
	// or broken by more than incomplete turns, or has more than driver.MaxDepthLimit turns.
	Lineage uint64
	// HeadStored is unset if there is a head whose turn is not stored.
	HeadStored bool
	// Last is the response ID of the last turn, or empty, and Stored when it was stored, or 0.
	Last   string
	Stored sessions.Seconds

	previous string // the response ID of the turn before the last one
	message  func() string
}

// Message returns the message of the HeadResolved condition.
func (v *Verdict) Message() string { return v.message() }

func text(s string) func() string { return func() string { return s } }

// Verdict returns the verdict on the history of the conversation, given the view of the turns. It ends at the head or, while a place is
// reserved for a head that is not stored, at the base. A turn with the ID of the head that continues another turn than the base is an
// earlier attempt that has lost its place.
func (r *Record) Verdict(turns *sessions.View) Verdict {
	if r.Misnamed {
		return Verdict{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNameMismatch, HeadStored: true,
			message: text("The name of the object does not follow from spec.conversationID: nothing finds the conversation by its ID."),
		}
	}
	if r.Head == "" {
		return noTurns
	}
	head := verdictAt(turns, r.Namespace, r.Head)
	if !r.Reserved || head.HeadStored && head.previous == r.Base {
		return head
	}
	base := noTurns
	if r.Base != "" {
		base = verdictAt(turns, r.Namespace, r.Base)
	}
	base.HeadStored = false
	if base.Status == metav1.ConditionFalse { // and remains so when the head is stored
		return base
	}
	base.Status, base.Reason, base.BrokenAt = metav1.ConditionUnknown, v1alpha1.ReasonHeadReserved, ""
	base.message = func() string {
		return fmt.Sprintf(
			"Response %q, for which the head is reserved, is not stored as the next turn yet: until then, the history ends before it.", r.Head)
	}
	return base
}

var noTurns = Verdict{
	Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoTurns, message: text("The conversation has no turns."), HeadStored: true,
}

// verdictAt returns the verdict on the history that ends at a response ID.
func verdictAt(turns *sessions.View, namespace, id string) Verdict {
	v, found := turns.Verdict(namespace, v1alpha1.ObjectName(id))
	if !found || v.Record.Misnamed { // the object with this name has another ID
		missing := &chain.Error{Rule: chain.NotFound, ResponseID: id}
		return Verdict{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonParentNotFound, message: missing.Message, BrokenAt: id}
	}
	// The message goes into a status, which is not rewritten if the head is overwritten with the same verdict.
	general := *v.Explanation
	general.Status, general.Problem = "", ""
	lineage := v.Lineage
	if v.Depth > driver.MaxDepthLimit {
		lineage = 0
	}
	return Verdict{
		Lineage: lineage,
		Status:  metav1.ConditionStatus(v.Rule.ConditionStatus()), Reason: v.Rule.Reason(), message: general.Message,
		BrokenAt: v.BrokenAt, Turns: v.Depth, HeadStored: true, previous: v.Record.Turn.Previous, Last: id, Stored: v.Record.Created,
	}
}
