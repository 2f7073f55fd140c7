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
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SnapshotChunkKind is the kind of SnapshotChunks.
const SnapshotChunkKind = "SnapshotChunk"

// SessionAnnotation, on a SnapshotChunk, has the name of the ResponseSession that the chunk belongs to.
const SessionAnnotation = "sessions.catena.dev/session"

// UnreferencedSinceAnnotation, on a SnapshotChunk, is the time, in RFC 3339, at which the operator first found that no
// ResponseSession refers to the chunk's snapshot.
const UnreferencedSinceAnnotation = "sessions.catena.dev/unreferenced-since"

// DataSizeAnnotation, on a SnapshotChunk, is the length of spec.data in base64, so that chunks can be measured without reading
// their data. An admission policy refuses any other value. A chunk without the annotation counts as one of the largest size.
const DataSizeAnnotation = "sessions.catena.dev/data-size"

// DataSize returns the value of the DataSizeAnnotation of a chunk with data.
func DataSize(data []byte) string { return strconv.Itoa(base64.StdEncoding.EncodedLen(len(data))) }

// MaxSnapshotChunkBytes is the size of the data in one SnapshotChunk: 384 KiB, in base64 a third of what
// etcd accepts.
const MaxSnapshotChunkBytes = 384 << 10

// SnapshotChunkName returns the name of a part, counted from 0, of the snapshot with a key.
func SnapshotChunkName(key string, part int) string { return fmt.Sprintf("%s-%d", key, part) }

// ParseSnapshotChunkName is the inverse of SnapshotChunkName. It returns false if name is not the name of a chunk.
func ParseSnapshotChunkName(name string) (key string, part int, ok bool) {
	key, number, _ := strings.Cut(name, "-")
	part, err := strconv.Atoi(number)
	return key, part, err == nil && part >= 0 && SnapshotChunkName(key, part) == name
}

// SnapshotChunkSpec has the bytes of a SnapshotChunk.
type SnapshotChunkSpec struct {
	// There is no format "byte": the API server checks that with a regular expression, which took 60 ms for a chunk, more than all
	// else that a save costs it.

	// data is a part of the compressed snapshot, at most 393216 bytes, in base64. That it is base64 is checked when it is read.
	// +kubebuilder:validation:Format=""
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=524288
	// +required
	Data []byte `json:"data,omitempty"`
}

// SnapshotChunk is a part of the bodies of a ResponseSession that are too large for one object. It is written before the session
// and deleted with it. A change of it makes the session unreadable: the session has the SHA-256 of the whole. The annotation
// sessions.catena.dev/session names the session.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=catena
// +kubebuilder:printcolumn:name="Session",type=string,JSONPath=`.metadata.annotations.sessions\.catena\.dev/session`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SnapshotChunk struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec has the bytes.
	// +required
	Spec SnapshotChunkSpec `json:"spec,omitzero"`
}

// SnapshotChunkList is a list of SnapshotChunks.
//
// +kubebuilder:object:root=true
type SnapshotChunkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SnapshotChunk `json:"items"`
}
