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

package sessions

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// Record is the part of a ResponseSession that the view keeps: everything that its chain and its controller need, but no
// bodies. A record is never changed, only replaced. There is one for each turn in the cluster, so its fields are no larger than needed.
type Record struct {
	Object
	// Created is when the object was created, and Since is when the status of its ChainValid condition last changed.
	Created, Since Seconds

	// Turn is the session's node in its chain.
	Turn chain.Turn
	// SnapshotBytes is the size of the bodies.
	SnapshotBytes int64
	Listing       Listing
	// Extra is nil if it would be empty.
	Extra *Extra

	// Written identifies the status that the object has.
	Written Fingerprint

	// The rest shares one word.

	// ChainValid is the status of the object's ChainValid condition.
	ChainValid ConditionStatus
	// Misnamed is set if the object's name does not follow from its response ID, and Deleting if the object is being
	// deleted. Either keeps the session out of every chain.
	Misnamed, Deleting bool
	// HasOwner is set if the object has an ownerReference to its parent, and OmitOwner if it must not get one: it has the annotation
	// that opts out, or as many ownerReferences as are permitted.
	HasOwner, OmitOwner bool
	// OutdatedOwner is set if an ownerReference of the object is to another version of the API.
	OutdatedOwner bool
	// Verified is set if the bodies are outside the object and have been read.
	Verified bool
	// HasVerdict is set if the status was written for the object's generation.
	HasVerdict bool
}

// Extra is the part of a record that few sessions have: see the methods of Record with the names of its fields.
type Extra struct {
	Snapshot *v1alpha1.SnapshotReference
	Problem  string
	Reported int64
}

// newExtra returns nil if all fields are empty.
func newExtra(snapshot *v1alpha1.SnapshotReference, problem string, reported int64) *Extra {
	if snapshot == nil && problem == "" && reported == 0 {
		return nil
	}
	return &Extra{snapshot, problem, reported}
}

func (r *Record) extra() Extra { return ptr.Deref(r.Extra, Extra{}) }

// Snapshot returns the reference to the bodies, or nil if they are in the object.
func (r *Record) Snapshot() *v1alpha1.SnapshotReference { return r.extra().Snapshot }

// Problem returns why the object itself makes its turn unreadable, or "" if it does not. It quotes no body.
func (r *Record) Problem() string { return r.extra().Problem }

// Reported returns the generation for which the object's SnapshotReadable condition is False, or 0 if there is no such condition.
func (r *Record) Reported() int64 { return r.extra().Reported }

// Seconds is a time as Kubernetes stores it, in seconds since 1970, and until 2106. The zero value is no time.
type Seconds uint32

// SecondsOf returns a time, or the nearest one that Seconds can have.
func SecondsOf(t time.Time) Seconds { return Seconds(min(max(t.Unix(), 0), math.MaxUint32)) }

// Time returns the time, or the zero metav1.Time.
func (s Seconds) Time() metav1.Time {
	if s == 0 {
		return metav1.Time{}
	}
	return metav1.Unix(int64(s), 0)
}

// ConditionStatus is the status of a condition, as an index of conditionStatuses.
type ConditionStatus uint8

var conditionStatuses = []metav1.ConditionStatus{"", metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}

// conditionStatusOf returns the zero value for a status that the CRD does not allow.
func conditionStatusOf(status metav1.ConditionStatus) ConditionStatus {
	return ConditionStatus(max(slices.Index(conditionStatuses, status), 0))
}

// Transition returns the status of a condition, and when it last changed, or zeros if there is no such condition.
func Transition(conditions []metav1.Condition, conditionType string) (ConditionStatus, Seconds) {
	condition := meta.FindStatusCondition(conditions, conditionType)
	if condition == nil {
		return 0, 0
	}
	return conditionStatusOf(condition.Status), SecondsOf(condition.LastTransitionTime.Time)
}

// Status returns the status as in metav1.Condition, and an empty string if there is no condition.
func (s ConditionStatus) Status() metav1.ConditionStatus { return conditionStatuses[s] }

// NewRecord returns the record of an object as the API server has sent it. Its strings do not keep the object alive. known,
// which may be nil, returns an object's current record, or nil. If that record has the same spec, the spec is not parsed again.
//
// The API server stores objects that Go cannot decode: times that its own pattern accepts and Go's does not, integers beyond an
// int64, bodies that are nested too deeply. So every object is parsed separately, field by field and without recursion. An
// object with such a field becomes an unreadable turn with a Problem, and does not affect other objects.
func NewRecord(value gjson.Result, known func(namespace, name string) *Record) *Record {
	r, _ := newRecord(value, known, -1)
	return r
}

// Flatten returns the record of an object as the API server has sent it, and the items of its turn. They are nil if the turn is
// unreadable or not part of a chain, or its bodies are outside the object.
func Flatten(value gjson.Result) (*Record, *chain.Items) { return newRecord(value, nil, math.MaxInt64) }

// maxItems is the maximum number of items of a turn whose bodies are in its object: as many as the CRD accepts as JSON.
const maxItems = 2 * v1alpha1.MaxListItems

// newRecord also returns the items if the bodies have at most flatten bytes.
func newRecord(value gjson.Result, known func(namespace, name string) *Record, flatten int64) (*Record, *chain.Items) {
	object := parseObject(value)
	r := object.record()
	status := object.decodeStatus()
	r.setStatus(status)
	if known != nil {
		if k := known(r.Namespace, r.Name); k != nil && k.SameSpec(&r.Object) && !r.mustBeRead(k) {
			r.Name, r.Turn, r.Misnamed, r.SnapshotBytes, r.SpecNodes, r.Listing = k.Name, k.Turn, k.Misnamed, k.SnapshotBytes, k.SpecNodes, k.Listing
			r.Extra = newExtra(k.Snapshot(), k.Problem(), r.Reported())
			r.setRest(object, status)
			return r, nil
		}
	}
	items := r.setSpec(object.spec, status, flatten)
	r.setRest(object, status)
	return r, items
}

// setSpec sets the fields that are derived from the spec, or from a status that was written for it, and returns the items if the
// bodies are in the object and have at most flatten bytes, and it is part of a chain.
func (r *Record) setSpec(spec gjson.Result, status *v1alpha1.ResponseSessionStatus, flatten int64) *chain.Items {
	// One pass over the spec, which has the bodies.
	fields := jsonvalue.RawMembers(spec.Raw, "responseID", "previousResponseID", "responseStatus", "createdAt", "completedAt",
		"snapshot", "format", "conversationID", "request", "response", "metadata", "packed")
	var small [8]gjson.Result // all but the bodies
	for i := range small {
		small[i] = gjson.Parse(fields[i])
	}
	id, previous, responseStatus, createdAt, completedAt, reference, format := small[0], small[1], small[2], small[3], small[4], small[5], small[6]
	request, response, metadata, packed := fields[8], fields[9], fields[10], fields[11]
	r.Turn = chain.Turn{Previous: strings.Clone(previous.Str), Status: intern(responseStatus.Str, responseStatuses)}
	r.Name, r.Turn.ID = together(r.Name, id.Str)
	r.Misnamed = r.Name != v1alpha1.ObjectName(r.Turn.ID)
	r.Listing = newListing(small[7], createdAt, completedAt)
	r.SpecNodes = int32(jsonvalue.Nodes(spec.Raw))
	var external *v1alpha1.SnapshotReference
	var bodies snapshot.Bodies
	var problem string
	switch {
	case reference.IsObject():
		external, problem = parseReference(reference)
		r.SnapshotBytes = external.SizeBytes
	case flatten < 0 && r.knownReadable(status):
		r.SnapshotBytes = status.SnapshotBytes
	case jsonvalue.IsString(packed):
		var err error
		if bodies, err = snapshot.Unpack(jsonvalue.Unquote(packed)); err != nil {
			problem = "`spec.packed` is damaged"
		}
		r.SnapshotBytes = int64(bodies.Size())
	default:
		bodies = snapshot.Bodies{Request: body(request), Response: body(response), Metadata: body(metadata)}
		r.SnapshotBytes = int64(bodies.Size())
	}
	problem = cmp.Or(formatProblem(format, external), timeProblem("createdAt", createdAt), timeProblem("completedAt", completedAt), problem)
	var items *chain.Items
	if problem == "" && external == nil && r.InChain() {
		var err error
		if r.SnapshotBytes <= flatten {
			items, err = chain.Flatten(bodies.Request, bodies.Response)
		} else {
			err = chain.Check(bodies.Request, bodies.Response, maxItems)
		}
		if err == nil && items != nil && items.Len() > maxItems {
			err = chain.ErrTooManyItems
		}
		if err != nil {
			problem = err.Error()
		}
	}
	r.Extra = newExtra(external, problem, r.Reported())
	if problem != "" {
		r.Turn.Unreadable = true
		return nil
	}
	return items
}

// together returns copies of two strings that share one allocation, because each takes up to 16 bytes more than it has.
func together(a, b string) (string, string) {
	both := a + b
	return both[:len(a)], both[len(a):]
}

// knownReadable reports whether the leader has recorded in the status that it has read the bodies in the object, and no replica has
// reported since that it could not. So a restart does not unpack all bodies again. Only of a completed turn does the verdict say so: see
// the order of the rules.
func (r *Record) knownReadable(status *v1alpha1.ResponseSessionStatus) bool {
	return status.ObservedGeneration == r.Generation && status.SnapshotBytes > 0 && status.BrokenAt != r.Turn.ID &&
		r.Turn.Status == chain.StatusCompleted && r.Reported() != r.Generation
}

// mustBeRead reports whether a replica has reported that it could not read the bodies in the object since this one made its record of
// them: an upgraded replica may be stricter.
func (r *Record) mustBeRead(known *Record) bool {
	return known.Snapshot() == nil && r.Reported() == r.Generation && known.Reported() != r.Reported()
}

// setRest sets the fields that are derived from the metadata and the status. It must be called after setSpec.
func (r *Record) setRest(object parsed, status *v1alpha1.ResponseSessionStatus) {
	r.setOwner(&object.meta)
	if r.Snapshot() != nil && r.Problem() == "" {
		r.Verified, r.Turn.Unreadable = r.verification(status)
	}
}

// verification returns whether the status records that a snapshot outside the object was read, or that it cannot be read. So a
// restart neither reads all snapshots again nor treats a broken one as intact. If the snapshot has been reported as unreadable
// since it was read, it counts as not read.
func (r *Record) verification(status *v1alpha1.ResponseSessionStatus) (verified, unreadable bool) {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionChainValid)
	if condition == nil || status.ObservedGeneration != r.Generation {
		return false, false
	}
	unreadable = condition.Reason == v1alpha1.ReasonSnapshotUnreadable && status.BrokenAt == r.Turn.ID
	return status.SnapshotBytes > 0 && !unreadable && r.Reported() != r.Generation, unreadable
}

func (r *Record) identity() uint64 { return r.UID.Identity() }

func (r *Record) names() (id, previous string) { return r.Turn.ID, r.Turn.Previous }

// InChain reports whether the session is part of a chain.
func (r *Record) InChain() bool { return !r.Misnamed && !r.Deleting }

// AwaitsVerdict reports whether the session has had no verdict yet, or only that it was pending before its owner changed it.
func (r *Record) AwaitsVerdict() bool {
	status := r.ChainValid.Status()
	return status == "" || status == metav1.ConditionUnknown && !r.HasVerdict
}

// WithMetadata returns the record with the metadata after a write of the record's version. If the metadata shows that the spec has changed too, it
// returns the record unchanged: the watch delivers the rest.
func (r *Record) WithMetadata(object *metav1.PartialObjectMetadata) *Record {
	if NewUID(object.UID) != r.UID || object.Generation != r.Generation {
		return r
	}
	next := *r
	next.ResourceVersion = ParseResourceVersion(object.ResourceVersion)
	next.setOwner(object)
	next.Deleting = object.DeletionTimestamp != nil
	return &next
}

// WithStatus returns the record with the verdict that was written to its object.
func (r *Record) WithStatus(status *v1alpha1.ResponseSessionStatus) *Record {
	next := *r
	next.setVerdict(status)
	return &next
}

// WithoutReport returns the record of an object whose SnapshotReadable condition is no longer False.
func (r *Record) WithoutReport() *Record {
	next := *r
	next.Extra = newExtra(r.Snapshot(), r.Problem(), 0)
	return &next
}

func (r *Record) setStatus(status *v1alpha1.ResponseSessionStatus) {
	r.setVerdict(status)
	report := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSnapshotReadable)
	if report != nil && report.Status == metav1.ConditionFalse {
		r.Extra = newExtra(r.Snapshot(), r.Problem(), report.ObservedGeneration)
	}
}

func (r *Record) setVerdict(status *v1alpha1.ResponseSessionStatus) {
	r.Written = NewFingerprint(status)
	r.HasVerdict = status.ObservedGeneration == r.Generation
	r.ChainValid, r.Since = Transition(status.Conditions, v1alpha1.ConditionChainValid)
}

// GetObjectMeta gives client-go's reflector the key of a record, the only metadata that it needs.
func (r *Record) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}
}

// setOwner sets the fields that are derived from the ownerReferences and the annotation.
func (r *Record) setOwner(object metav1.Object) {
	owners := object.GetOwnerReferences()
	parent := v1alpha1.ObjectName(r.Turn.Previous)
	r.HasOwner = slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool {
		return owner.Kind == v1alpha1.ResponseSessionKind && owner.Name == parent
	})
	r.OutdatedOwner = kubeclient.HasOutdatedOwner(owners)
	r.OmitOwner = object.GetAnnotations()[v1alpha1.OmitOwnerReferenceAnnotation] == "true" || len(owners) >= v1alpha1.MaxOwnerReferences
}

var responseStatuses = chain.Statuses()

// intern returns the known string that equals s, so that the record does not keep a copy, or a copy of s.
func intern(s string, known []string) string {
	if i := slices.Index(known, s); i >= 0 {
		return known[i]
	}
	return strings.Clone(s)
}
