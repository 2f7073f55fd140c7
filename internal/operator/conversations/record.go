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
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/store/driver"
)

// Record is the part of a Conversation that the view keeps. A record is never changed, only replaced.
type Record struct {
	sessions.Object
	// ID is the conversation ID, and Title the beginning of the title.
	ID, Title string
	// User, Parent and State are those of the spec, empty if absent.
	User, Parent, State string
	// Head and Base are the response IDs of the spec, empty if absent.
	Head, Base string
	// Hidden is a hash of the list of hidden items, or 0 if the list is empty.
	Hidden uint64
	// Received is when the view received this head and base.
	Received time.Time
	// Written identifies the status that the object has, and HistoryRevision the turns that the figures in it are about.
	Written         sessions.Fingerprint
	HistoryRevision string
	// Created is when the object was created, Assigned when a field other than its status was last set to a value, Updated when something
	// other than its status was last changed (a label or annotation that was removed leaves no trace), and Activity when its last turn was
	// stored, as far as the status has it.
	Created, Assigned, Updated, Activity sessions.Seconds
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

// parse returns the record of an object as the API server has sent it: see lean.Kind. If the view has that version, it is the record of the view,
// so that another list of the same conversations takes little memory.
func (v *View) parse(object gjson.Result) (metav1.ObjectMeta, *Record) {
	fields := jsonvalue.Members(object, "metadata", "spec", "status")
	metadata := kubeclient.ParseMetadata(fields[0])
	sent := sessions.NewObject(&metadata, object)
	known, found := v.Get(sent.Namespace, sent.Name)
	if found { // share the string
		sent.Namespace = known.Namespace
	} else {
		sent.Namespace = unique.Make(sent.Namespace).Value()
	}
	// The size can differ: Observe does not know it.
	if found && known.UID == sent.UID && known.ResourceVersion == sent.ResourceVersion && known.ObjectBytes == sent.ObjectBytes {
		return metadata, known
	}
	r := &Record{
		Object: sent, Deleting: metadata.DeletionTimestamp != nil, Received: v.clock.Now(),
		Created: sessions.SecondsOf(metadata.CreationTimestamp.Time), Assigned: assignedAt(fields[0]),
	}
	r.readSpec(fields[1])
	status := DecodeStatus(fields[2])
	r.setStatus(status)
	if !found || known.UID != r.UID {
		known = nil
	}
	r.Updated = r.updatedAt(known, secondsOf(status.LastUpdateTime))
	return metadata, r
}

// updatedAt returns the time for Updated, given the record of the previous version, or nil, and the time that the status has, or 0. The API
// server records no time of a change that only removes something: that is when it is received. The status alone does not show it, because
// it is not written between changes that follow each other quickly.
func (r *Record) updatedAt(known *Record, written sessions.Seconds) sessions.Seconds {
	switch {
	case r.HasVerdict:
		return max(r.Assigned, written)
	case known == nil && written != 0 && r.Assigned <= written, known != nil && r.Generation != known.Generation && r.Assigned <= known.Assigned:
		return max(r.Assigned, written, sessions.SecondsOf(r.Received))
	case known == nil:
		return r.Assigned
	}
	return max(r.Assigned, known.Updated)
}

// readSpec reads the spec of an object. The strings of the record do not keep the object alive.
func (r *Record) readSpec(object gjson.Result) {
	r.SpecNodes = int32(jsonvalue.Nodes(object.Raw))
	spec := jsonvalue.Members(object, "conversationID", "headResponseID", "baseResponseID", "reservation",
		"title", "userID", "parentConversationID", "state", "hiddenItems")
	r.Misnamed = r.Name != v1alpha1.ObjectName(spec[0].Str)
	r.ID, r.Head, r.Base, r.Reserved = strings.Clone(spec[0].Str), strings.Clone(spec[1].Str), strings.Clone(spec[2].Str), spec[3].IsObject()
	r.Title, r.User, r.Parent = driver.ListedTitle(spec[4].Str), strings.Clone(spec[5].Str), strings.Clone(spec[6].Str)
	if i := slices.Index(driver.ConversationStates, spec[7].Str); i >= 0 {
		r.State = driver.ConversationStates[i]
	}
	r.Hidden = hiddenOf(spec[8])
	r.WithTurns = r.State == v1alpha1.ConversationStateDeleting
}

// hiddenOf returns the hash of a list of hidden items. A tenant that finds a collision gets a wrong preview, of its own conversation.
func hiddenOf(items gjson.Result) uint64 {
	if len(items.Array()) == 0 {
		return 0
	}
	sum := fnv.New64a()
	_, _ = sum.Write(jsonvalue.Bytes(items.Raw))
	return sum.Sum64()
}

// assignedAt returns when a field of an object, except its status, was last set to a value.
func assignedAt(metadata gjson.Result) (newest sessions.Seconds) {
	for _, entry := range jsonvalue.Members(metadata, "managedFields")[0].Array() {
		fields := jsonvalue.Members(entry, "time", "subresource")
		if at, err := time.Parse(time.RFC3339, fields[0].Str); err == nil && fields[1].Str == "" {
			newest = max(newest, sessions.SecondsOf(at))
		}
	}
	return newest
}

// DecodeStatus returns the status of an object, or an empty one if it has none or it cannot be decoded; the leader then rewrites it.
func DecodeStatus(raw gjson.Result) *v1alpha1.ConversationStatus {
	status := &v1alpha1.ConversationStatus{}
	if raw.IsObject() && json.Unmarshal(jsonvalue.Bytes(raw.Raw), status) != nil {
		return &v1alpha1.ConversationStatus{}
	}
	return status
}

func (r *Record) setStatus(status *v1alpha1.ConversationStatus) {
	r.Written = NewFingerprint(status)
	r.HistoryRevision = status.HistoryRevision
	r.HasVerdict = status.ObservedGeneration == r.Generation
	r.HeadResolved, r.Since = sessions.Transition(status.Conditions, v1alpha1.ConditionHeadResolved)
	r.Activity = secondsOf(status.LastActivityTime)
}

func secondsOf(t *metav1.Time) sessions.Seconds {
	if t == nil {
		return 0
	}
	return sessions.SecondsOf(t.Time)
}

// NewFingerprint returns the fingerprint of a status. It covers every field except conditions of other types, the message of HeadResolved, so
// that an upgrade that rewords it rewrites nothing, and the times, which follow from the rest except for the lastActivityTime. It does not cover
// what follows from the historyRevision, so that it can be made before the turns are read, except for a preview that has to be removed.
func NewFingerprint(status *v1alpha1.ConversationStatus) sessions.Fingerprint {
	written := *status
	written.Conditions, written.LastUpdateTime = nil, nil
	written.Items, written.Usage, written.Model = 0, nil, ""
	if status.Turns > 0 {
		written.Preview = ""
	}
	for _, condition := range status.Conditions {
		if condition.Type == v1alpha1.ConditionHeadResolved {
			condition.Message, condition.LastTransitionTime = "", metav1.Time{}
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
	if known == nil || known == r || known.UID != r.UID || known.Head != r.Head || known.Base != r.Base {
		return r
	}
	next := *r
	next.Received = known.Received
	return &next
}
