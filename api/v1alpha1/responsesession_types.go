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

	"github.com/catena-dev/catena/internal/chain"
)

// The values of spec.responseStatus that Catena knows. They mirror the status of OpenAI's Response object; any other
// string is stored unchanged and treated as not completed.
const (
	ResponseStatusQueued     = chain.StatusQueued     // "queued"
	ResponseStatusInProgress = chain.StatusInProgress // "in_progress"
	ResponseStatusCompleted  = chain.StatusCompleted  // "completed"
	ResponseStatusIncomplete = chain.StatusIncomplete // "incomplete"
	ResponseStatusFailed     = chain.StatusFailed     // "failed"
	ResponseStatusCancelled  = chain.StatusCancelled  // "cancelled"
)

// MaxListItems is the maximum number of items of a request's input and of a response's output in an object: the CRD's
// maxItems. A turn with more is stored in a snapshot.
const MaxListItems = 16384

// MaxPackedBytes is the maximum size of the request, the response and the metadata in spec.packed together, in bytes, before they are
// compressed.
const MaxPackedBytes = 512 << 10

// FormatPacked is the format of bodies that are in spec.packed.
const FormatPacked = 2

// MaxFormat and MaxSnapshotFormat are the newest formats of bodies and of snapshots that this build reads. See
// docs/decisions/versions.md.
const (
	MaxFormat         = FormatPacked
	MaxSnapshotFormat = 1
)

// ResponseSessionKind is the kind of ResponseSessions.
const ResponseSessionKind = "ResponseSession"

// OmitOwnerReferenceAnnotation, set to "true" on a ResponseSession, prevents the controller from adding the
// ownerReference to its parent. Set it on sessions that are restored from a backup: their parents have new UIDs,
// and garbage collection deletes an object whose owner's UID does not exist.
const OmitOwnerReferenceAnnotation = "sessions.catena.dev/omit-owner-reference"

// MaxOwnerReferences and MaxChunkOwnerReferences are the maximum numbers of ownerReferences of a ResponseSession and a SnapshotChunk. The
// policy in config/admission/metadata.yaml refuses to add more. Objects with more can exist nevertheless: the policy may be missing, or
// younger than they are.
const (
	MaxOwnerReferences      = 16
	MaxChunkOwnerReferences = 2
)

// ConditionChainValid indicates whether the chain from a session to its root resolves with the default options.
//
// Possible reasons for True: Resolved.
// Possible reasons for Unknown: TurnPending.
// Possible reasons for False: ParentNotFound, CycleDetected, DepthExceeded, TurnIncomplete, TurnNotCompleted,
// SnapshotUnreadable, NameMismatch.
const ConditionChainValid = "ChainValid"

// The reasons of the ChainValid condition. If several apply, the one nearest to the session wins; at the same turn, the
// depth and then a cycle come first.
const (
	// ReasonResolved: every turn from the session to its root is stored and completed.
	ReasonResolved = chain.ReasonResolved // "Resolved"
	// ReasonTurnPending: the session or one of its ancestors is queued or in_progress.
	ReasonTurnPending = chain.ReasonTurnPending // "TurnPending"
	// ReasonParentNotFound: an ancestor does not exist in this namespace, or is being deleted. The chain resolves again
	// once that ancestor is saved.
	ReasonParentNotFound = chain.ReasonParentNotFound // "ParentNotFound"
	// ReasonCycleDetected: following the parents leads back to a turn that was already passed.
	ReasonCycleDetected = chain.ReasonCycleDetected // "CycleDetected"
	// ReasonDepthExceeded: the chain has more turns than the operator's --max-depth.
	ReasonDepthExceeded = chain.ReasonDepthExceeded // "DepthExceeded"
	// ReasonTurnIncomplete: the session or one of its ancestors ended incomplete: the model was cut off, by max_output_tokens or a
	// content filter. Requests that set continueIncomplete, such as the gateway's, can use it as context.
	ReasonTurnIncomplete = chain.ReasonTurnIncomplete // "TurnIncomplete"
	// ReasonTurnNotCompleted: the session or one of its ancestors failed or was cancelled, or has a status that Catena does
	// not know.
	ReasonTurnNotCompleted = chain.ReasonTurnNotCompleted // "TurnNotCompleted"
	// ReasonSnapshotUnreadable: the request or response of the session or of one of its ancestors cannot be turned into
	// input items, or its snapshot is damaged, incomplete, or in a store that the operator is not configured with.
	ReasonSnapshotUnreadable = chain.ReasonSnapshotUnreadable // "SnapshotUnreadable"
	// ReasonNameMismatch: metadata.name is not ObjectName(spec.responseID). The session is in no chain.
	ReasonNameMismatch = chain.ReasonNameMismatch // "NameMismatch"
)

// ConditionSnapshotReadable is set to False by any replica of the operator that could not read the snapshot of a session
// for a client. The leader reads the snapshot again: it sets the condition to True if that succeeds, and otherwise marks
// the chain. A session whose snapshot no replica has failed to read does not have this condition.
//
// Possible reasons for True: SnapshotVerified.
// Possible reasons for False: SnapshotUnreadable.
const ConditionSnapshotReadable = "SnapshotReadable"

// ReasonSnapshotVerified is a reason of the SnapshotReadable condition: the leader has read the snapshot after a replica
// could not.
const ReasonSnapshotVerified = "SnapshotVerified"

// ResponseSessionSpec is one turn: what was asked, what was answered, and which turn came before it.
//
// +kubebuilder:validation:XValidation:rule="self.responseID == oldSelf.responseID",message="`responseID` must not change: save another turn under an ID of its own"
// +kubebuilder:validation:XValidation:rule="has(self.previousResponseID) == has(oldSelf.previousResponseID) && (!has(self.previousResponseID) || self.previousResponseID == oldSelf.previousResponseID)",message="`previousResponseID` must not change: the parent of a turn is fixed when it is created"
// +kubebuilder:validation:XValidation:rule="!has(self.previousResponseID) || self.previousResponseID != self.responseID",message="`previousResponseID` must not be the session's own `responseID`"
// +kubebuilder:validation:XValidation:rule="!has(self.snapshot) && !has(self.packed) || !has(self.response) && !has(self.metadata)",message="`response` and `metadata` must be absent if `packed` or `snapshot` is set: they are part of it"
// +kubebuilder:validation:XValidation:rule="has(self.packed) == (has(self.format) && self.format >= 2)",message="`format` must be 2 if `packed` is set, and otherwise 1 or absent"
// +kubebuilder:validation:XValidation:rule="!has(self.packed) || !has(self.snapshot)",message="only one of `packed` and `snapshot` can be set"
type ResponseSessionSpec struct {
	// responseID is the ID of the response, as the gateway returned it to its client. A later request names it in
	// previous_response_id. It cannot change, and it determines metadata.name: the ID with "_" replaced by "." if that
	// is a DNS subdomain name and the ID has no "." and does not start with "sha256_", otherwise "sha256." and the
	// lower-case base32 SHA-256 of the ID.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	ResponseID string `json:"responseID,omitempty"`

	// previousResponseID is the responseID of the parent: the turn, in the same namespace, that this one continues.
	// Without it the turn is the root of a chain. The parent need not exist yet. It cannot change.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	PreviousResponseID string `json:"previousResponseID,omitempty"`

	// conversationID is the ID of the OpenAI conversation that this turn belongs to. Catena stores it and lets clients
	// select by it. When the Conversation with this ID is deleted with its turns, this turn is deleted unless something
	// else needs it. Otherwise, Catena does not interpret it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ConversationID string `json:"conversationID,omitempty"`

	// createdAt is when the response was created, in RFC 3339 with an upper-case T and Z.
	// +optional
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`

	// completedAt is when the response was completed, in RFC 3339 with an upper-case T and Z.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// responseStatus is the status of the response, verbatim: queued, in_progress, completed, incomplete, failed or
	// cancelled. Only a completed turn can be used as context or, if a request has continueIncomplete, an incomplete one; any
	// other string is stored and treated as not completed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	ResponseStatus string `json:"responseStatus,omitempty"`

	// format is the version of the form in which request, response and metadata are stored, here or in the snapshot. 1 is
	// verbatim, as described for each. 2 is in packed. If absent, it is 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2
	// +optional
	Format int32 `json:"format,omitempty"`

	// packed has request, response and metadata exactly as they were received, in the form of a snapshot: a line of JSON with
	// the sizes of the three, followed by the three, compressed with zstd, in base64. Together they have at most 512 KiB, and at most
	// 4 KiB plus four times their compressed size, which the frame must declare. The API server needs far less memory for it than for
	// JSON. `kubectl get inputitems` shows the items.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=716800
	// +optional
	Packed string `json:"packed,omitempty"`

	// request is the request of this turn as the Responses API defines it, verbatim: input, instructions, model, tools and
	// any other field that was sent. If packed or snapshot is set, it has only the model, for display.
	// +structType=atomic
	// +optional
	Request *runtime.RawExtension `json:"request,omitempty"`

	// response is the response of this turn as the Responses API defines it, verbatim: id, output, usage, error and any
	// other field that was returned.
	// +structType=atomic
	// +optional
	Response *runtime.RawExtension `json:"response,omitempty"`

	// metadata is any JSON object that the gateway wants to keep with the turn. Catena does not interpret it.
	// +structType=atomic
	// +optional
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`

	// snapshot refers to request, response and metadata if they are stored outside the object, because they are too large
	// for it.
	// +optional
	Snapshot *SnapshotReference `json:"snapshot,omitempty"`

	// immutable, once true, prevents any further change of the spec, including this field. The policy in
	// config/admission refuses it.
	// +optional
	Immutable *bool `json:"immutable,omitempty"`
}

// Where a snapshot is stored.
const (
	// SnapshotStoreInline: in the ResponseSession itself.
	SnapshotStoreInline = "Inline"
	// SnapshotStoreChunks: in SnapshotChunks of the same namespace.
	SnapshotStoreChunks = "Chunks"
	// SnapshotStoreBlob: in the bucket that the operator's --snapshot-store names.
	SnapshotStoreBlob = "Blob"
)

// SnapshotReference refers to a snapshot that is stored outside its ResponseSession. The snapshot is a line of JSON with
// the sizes of the request, the response and the metadata, followed by these three exactly as they were received, all of
// it compressed with zstd. While store and key stay the same, so does the rest: usage is counted from storedBytes.
//
// +kubebuilder:validation:XValidation:rule="self.store != oldSelf.store || self.key != oldSelf.key || self == oldSelf && oldSelf == self",message="`snapshot` must not change while its `store` and `key` stay the same: the snapshot never changes"
type SnapshotReference struct {
	// store is where the snapshot is: Chunks for SnapshotChunks of the same namespace, Blob for the bucket that the
	// operator and the gateways are configured with.
	// +kubebuilder:validation:Enum=Chunks;Blob
	// +required
	Store string `json:"store,omitempty"`

	// format is the version of the form of the snapshot and of its parts. 1 is the one described above. If absent, it is 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1
	// +optional
	Format int32 `json:"format,omitempty"`

	// key identifies the snapshot. Its parts are the SnapshotChunks KEY-0, KEY-1 and so on, or the object
	// NAMESPACE/SESSION/KEY of the bucket. Every save has its own key.
	// +kubebuilder:validation:Pattern=`^[a-z2-7]{26}$`
	// +kubebuilder:validation:MaxLength=26
	// +required
	Key string `json:"key,omitempty"`

	// parts is the number of parts.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +required
	Parts int32 `json:"parts,omitempty"`

	// sizeBytes is the size of the snapshot before it was compressed.
	// +kubebuilder:validation:Minimum=1
	// +required
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// storedBytes is the size of all parts together.
	// +kubebuilder:validation:Minimum=1
	// +required
	StoredBytes int64 `json:"storedBytes,omitempty"`

	// sha256 is the SHA-256 of the snapshot before it was compressed, in lower-case hexadecimal. It is checked on every
	// read.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=64
	// +required
	SHA256 string `json:"sha256,omitempty"`
}

// ResponseSessionStatus is the controller's verdict on the chain from the session to its root.
type ResponseSessionStatus struct {
	// conditions of the session. ChainValid indicates whether its chain resolves with the default options; its reason is
	// the cause if it does not. SnapshotReadable is False after a replica could not read the snapshot, until the leader has read it.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the verdict is about.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// depth is the number of turns from the root to this one, both counted: a root has depth 1. It is absent while no
	// root is reached.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Depth int32 `json:"depth,omitempty"`

	// rootResponseID is the responseID of the root, the first turn of the chain. It is absent while no root is reached.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	RootResponseID string `json:"rootResponseID,omitempty"`

	// brokenAt is the response ID at which the chain breaks: the missing, unfinished, unreadable or repeated turn, or the
	// first one beyond the depth limit. It is absent if the chain resolves.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +optional
	BrokenAt string `json:"brokenAt,omitempty"`

	// snapshotStore is where the request and the response are: Inline, Chunks or Blob.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +optional
	SnapshotStore string `json:"snapshotStore,omitempty"`

	// snapshotBytes is the size of the request, the response and the metadata together, before compression. It is set once
	// they have been read.
	// +kubebuilder:validation:Minimum=0
	// +optional
	SnapshotBytes int64 `json:"snapshotBytes,omitempty"`
}

// ResponseSession is one turn of the OpenAI Responses API: the request, the response, and the ID of the turn before it.
// Turns of one namespace form chains; a chain never leaves its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=rsess,categories=catena
// +kubebuilder:printcolumn:name="Previous",type=string,JSONPath=`.spec.previousResponseID`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.spec.responseStatus`
// +kubebuilder:printcolumn:name="Chain",type=string,JSONPath=`.status.conditions[?(@.type=="ChainValid")].reason`
// +kubebuilder:printcolumn:name="Depth",type=integer,JSONPath=`.status.depth`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.request.model`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Conversation",type=string,priority=1,JSONPath=`.spec.conversationID`
// +kubebuilder:printcolumn:name="Root",type=string,priority=1,JSONPath=`.status.rootResponseID`
// +kubebuilder:printcolumn:name="Broken-At",type=string,priority=1,JSONPath=`.status.brokenAt`
// +kubebuilder:printcolumn:name="Stored",type=string,priority=1,JSONPath=`.status.snapshotStore`
// +kubebuilder:printcolumn:name="Bytes",type=integer,priority=1,JSONPath=`.status.snapshotBytes`
// +kubebuilder:selectablefield:JSONPath=`.spec.responseID`
// +kubebuilder:selectablefield:JSONPath=`.spec.previousResponseID`
// +kubebuilder:selectablefield:JSONPath=`.spec.conversationID`
// +kubebuilder:selectablefield:JSONPath=`.spec.responseStatus`
// +kubebuilder:selectablefield:JSONPath=`.status.rootResponseID`
// +kubebuilder:validation:XValidation:rule="self.spec.responseID.size() <= 253 && !self.spec.responseID.startsWith('sha256_') && self.spec.responseID.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(_[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') ? self.metadata.name == self.spec.responseID.replace('_', '.') : self.metadata.name.matches('^sha256[.][a-z2-7]{52}$')",message="`metadata.name` must be derived from `spec.responseID`: the ID with \"_\" replaced by \".\" if that is a DNS subdomain name and the ID has no \".\" and does not start with \"sha256_\", otherwise \"sha256.\" and the lower-case base32 SHA-256 of the ID without padding"
type ResponseSession struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the turn as it was saved.
	// +required
	Spec ResponseSessionSpec `json:"spec,omitzero"`

	// status is the verdict of the controller.
	// +optional
	Status ResponseSessionStatus `json:"status,omitzero"`
}

// ResponseSessionList is a list of ResponseSessions.
//
// +kubebuilder:object:root=true
type ResponseSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResponseSession `json:"items"`
}
