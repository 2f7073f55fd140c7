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
	"encoding/json"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// Record is the part of a Conversation that the view keeps. A record is never changed, only replaced.
type Record struct {
	sessions.Object
	// Head and Base are the response IDs of the spec, empty if absent.
	Head, Base string
	// Received is when the view received this head and base.
	Received time.Time
	// Written identifies the status that the object has.
	Written sessions.Fingerprint
	// Since is when the status of the HeadResolved condition last changed.
	Since sessions.Seconds
	// HeadResolved is the status of that condition.
	HeadResolved sessions.ConditionStatus
	// Reserved is set if the spec has a reservation.
	Reserved bool
	// WithTurns is set if the state is Deleting, so that the conversation is to be deleted with its turns.
	WithTurns bool
	// Misnamed is set if the object's name does not follow from its conversationID, and Deleting if the object is being deleted.
	Misnamed, Deleting bool
	// HasVerdict is set if the status was written for the object's generation.
	HasVerdict bool
}

// newRecord returns the record of an object as the API server has sent it: see lean.Kind. Its strings do not keep the object alive.
func newRecord(object gjson.Result, now time.Time) (metav1.ObjectMeta, *Record) {
	fields := jsonvalue.Members(object, "metadata", "spec", "status")
	metadata := kubeclient.ParseMetadata(fields[0])
	r := &Record{Object: sessions.NewObject(&metadata, object), Deleting: metadata.DeletionTimestamp != nil, Received: now}
	r.SpecNodes = int32(jsonvalue.Nodes(fields[1].Raw))
	spec := jsonvalue.Members(fields[1], "conversationID", "headResponseID", "baseResponseID", "reservation", "state")
	r.Misnamed = r.Name != v1alpha1.ObjectName(spec[0].Str)
	r.Head, r.Base, r.Reserved = strings.Clone(spec[1].Str), strings.Clone(spec[2].Str), spec[3].IsObject()
	r.WithTurns = spec[4].Str == v1alpha1.ConversationStateDeleting
	r.setStatus(decodeStatus(fields[2]))
	return metadata, r
}

// decodeStatus returns the status, or an empty one if it cannot be decoded; the leader then rewrites it.
func decodeStatus(raw gjson.Result) *v1alpha1.ConversationStatus {
	status := &v1alpha1.ConversationStatus{}
	if raw.IsObject() && json.Unmarshal(jsonvalue.Bytes(raw.Raw), status) != nil {
		return &v1alpha1.ConversationStatus{}
	}
	return status
}

func (r *Record) setStatus(status *v1alpha1.ConversationStatus) {
	r.Written = NewFingerprint(status)
	r.HasVerdict = status.ObservedGeneration == r.Generation
	r.HeadResolved, r.Since = sessions.Transition(status.Conditions, v1alpha1.ConditionHeadResolved)
}

// NewFingerprint returns the fingerprint of a status. It covers every field except conditions of other types, and the times, which follow
// from the rest. It covers the message of the condition: no other field has the turn at which a chain breaks.
func NewFingerprint(status *v1alpha1.ConversationStatus) sessions.Fingerprint {
	written := *status
	written.Conditions = nil
	for _, condition := range status.Conditions {
		if condition.Type == v1alpha1.ConditionHeadResolved {
			condition.LastTransitionTime = metav1.Time{}
			written.Conditions = append(written.Conditions, condition)
		}
	}
	return sessions.FingerprintOf(written)
}

// WithStatus returns the record after its status has been written, given the metadata of the object then. If the metadata shows that the spec
// has changed too, it returns the record unchanged: the watch delivers the rest.
func (r *Record) WithStatus(object *metav1.PartialObjectMetadata, status *v1alpha1.ConversationStatus) *Record {
	if object.Generation != r.Generation {
		return r
	}
	next := *r
	next.ResourceVersion = sessions.ParseResourceVersion(object.ResourceVersion)
	next.setStatus(status)
	return &next
}

// carryOver returns the record with the time at which the view received its head and base, given the known record of the object, or nil. A
// renewal of a reservation changes neither.
func (r *Record) carryOver(known *Record) *Record {
	if known == nil || known.UID != r.UID || known.Head != r.Head || known.Base != r.Base {
		return r
	}
	next := *r
	next.Received = known.Received
	return &next
}
