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
	"hash/maphash"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/snapshot"
)

// Session is what the view keeps of a ResponseSession: all that its chain and its controller need, and no body. It is
// never changed, only replaced.
type Session struct {
	Namespace  string
	Name       string
	UID        types.UID
	Generation int64
	// ResourceVersion is the object's, as the number that it is.
	ResourceVersion uint64

	// Turn is the session's place in its chain.
	Turn chain.Turn
	// Misnamed is set where the object's name is not the one that its response ID has. It is then in no chain.
	Misnamed bool

	// OwnerUID is the UID that the object's ownerReference to its parent has, empty where there is no such reference.
	OwnerUID types.UID
	// OmitOwner is set where the object carries the annotation that keeps the ownerReference off.
	OmitOwner bool

	// Snapshot leads to the bodies, nil where they are in the object, and SnapshotBytes is their size.
	Snapshot      *v1alpha1.SnapshotReference
	SnapshotBytes int64
	// Verified is set where the bodies are outside the object and have been read.
	Verified bool

	// ChainValid is the status of the object's ChainValid condition, empty where it has none yet, and Since the time at
	// which it became that.
	ChainValid metav1.ConditionStatus
	Since      time.Time
	// Written identifies the status that the object has.
	Written StatusSum
}

// StatusSum identifies the parts of a status that Catena writes, within one process.
type StatusSum uint64

var seed = maphash.MakeSeed()

// Sum returns the sum of a status. All that Catena writes counts, but for the condition's lastTransitionTime, which
// follows from the rest.
func Sum(status *v1alpha1.ResponseSessionStatus) StatusSum {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionChainValid)
	if condition == nil {
		return 0
	}
	return StatusSum(maphash.Comparable(seed, struct {
		status                          metav1.ConditionStatus
		reason, message, root, brokenAt string
		observed, conditionObserved     int64
		depth                           int32
		snapshotStore                   string
		snapshotBytes                   int64
	}{
		condition.Status, condition.Reason, condition.Message, status.RootResponseID, status.BrokenAt,
		status.ObservedGeneration, condition.ObservedGeneration, status.Depth, status.SnapshotStore, status.SnapshotBytes,
	}))
}

// NewSession returns what the view keeps of an object. Its strings do not keep the object alive.
func NewSession(object *v1alpha1.ResponseSession) *Session {
	spec := &object.Spec
	s := &Session{
		Namespace:       object.Namespace,
		Name:            object.Name,
		UID:             object.UID,
		Generation:      object.Generation,
		ResourceVersion: parseResourceVersion(object.ResourceVersion),
		Turn: chain.Turn{
			ID:       spec.ResponseID,
			Previous: spec.PreviousResponseID,
			Status:   intern(spec.ResponseStatus),
		},
		Misnamed:  object.Name != v1alpha1.ObjectName(spec.ResponseID),
		OwnerUID:  ownerUID(object, v1alpha1.ObjectName(spec.PreviousResponseID)),
		OmitOwner: omitsOwner(object),
	}
	if spec.Snapshot == nil {
		bodies := Bodies(spec)
		_, err := chain.Flatten(bodies.Request, bodies.Response)
		s.Turn.Unreadable, s.SnapshotBytes = err != nil, int64(bodies.Size())
	} else {
		s.Snapshot, s.SnapshotBytes = spec.Snapshot, spec.Snapshot.SizeBytes
		s.Verified, s.Turn.Unreadable = verdict(object)
	}
	s.setStatus(&object.Status)
	return s
}

// verdict returns what the status says of a snapshot outside the object: that it was read, or that it cannot be read. So a
// restart neither reads them all again nor takes for intact what is known to be broken.
func verdict(object *v1alpha1.ResponseSession) (verified, unreadable bool) {
	status := &object.Status
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionChainValid)
	if condition == nil || status.ObservedGeneration != object.Generation {
		return false, false
	}
	unreadable = condition.Reason == v1alpha1.ReasonSnapshotUnreadable && status.BrokenAt == object.Spec.ResponseID
	return status.SnapshotBytes > 0 && !unreadable, unreadable
}

// WithMetadata returns the session with an object's newer metadata. Where the metadata shows that the spec changed too,
// it returns the session as it was, and the watch brings the rest.
func (s *Session) WithMetadata(object *metav1.PartialObjectMetadata) *Session {
	if object.UID != s.UID || object.Generation != s.Generation {
		return s
	}
	next := *s
	next.ResourceVersion = parseResourceVersion(object.ResourceVersion)
	next.OwnerUID = ownerUID(object, v1alpha1.ObjectName(s.Turn.Previous))
	next.OmitOwner = omitsOwner(object)
	return &next
}

// WithStatus returns the session with a status that was written to its object.
func (s *Session) WithStatus(status *v1alpha1.ResponseSessionStatus) *Session {
	next := *s
	next.setStatus(status)
	return &next
}

func (s *Session) setStatus(status *v1alpha1.ResponseSessionStatus) {
	s.Written = Sum(status)
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionChainValid); condition != nil {
		s.ChainValid, s.Since = internStatus(condition.Status), condition.LastTransitionTime.Time
	}
}

// SameSpec reports whether both are the same object with the same spec.
func (s *Session) SameSpec(other *Session) bool {
	return s.UID == other.UID && s.Generation == other.Generation
}

// SameVersion reports whether an object is of the version that the session was made of.
func (s *Session) SameVersion(object metav1.Object) bool {
	return s.ResourceVersion == parseResourceVersion(object.GetResourceVersion())
}

// GetObjectMeta gives client-go's reflector the key of a session, which is all that it asks for.
func (s *Session) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}
}

// parseResourceVersion returns zero, older than everything, for what is no number; Kubernetes knows no such version.
func parseResourceVersion(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Bodies returns the bodies that are in an object.
func Bodies(spec *v1alpha1.ResponseSessionSpec) snapshot.Bodies {
	return snapshot.Bodies{Request: raw(spec.Request), Response: raw(spec.Response), Metadata: raw(spec.Metadata)}
}

func raw(extension *runtime.RawExtension) []byte {
	if extension == nil {
		return nil
	}
	return extension.Raw
}

// ownerUID returns the UID of the ownerReference to the session of a name, empty where there is none.
func ownerUID(object metav1.Object, parentName string) types.UID {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == v1alpha1.ResponseSessionKind && owner.Name == parentName {
			return owner.UID
		}
	}
	return ""
}

func omitsOwner(object metav1.Object) bool {
	return object.GetAnnotations()[v1alpha1.OmitOwnerReferenceAnnotation] == "true"
}

// intern and internStatus return the constant for a string that every session repeats.

func intern(status string) string {
	for _, known := range []string{
		v1alpha1.ResponseStatusCompleted, v1alpha1.ResponseStatusInProgress, v1alpha1.ResponseStatusQueued,
		v1alpha1.ResponseStatusIncomplete, v1alpha1.ResponseStatusFailed, v1alpha1.ResponseStatusCancelled,
	} {
		if status == known {
			return known
		}
	}
	return status
}

func internStatus(status metav1.ConditionStatus) metav1.ConditionStatus {
	for _, known := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		if status == known {
			return known
		}
	}
	return status
}
