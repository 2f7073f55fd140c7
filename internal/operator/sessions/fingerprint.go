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
	"encoding/json"
	"fmt"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// Fingerprint identifies, within one process, the part of a status that the leader writes: two statuses with the same
// fingerprint need no write. That of a session covers every field except
//   - conditions of other types than ChainValid, which have other writers,
//   - the message of ChainValid, so that an upgrade that rewords it does not rewrite the status of every session, and
//   - the lastTransitionTime, which follows from the rest.
type Fingerprint uint64

var seed = maphash.MakeSeed()

// NewFingerprint returns the fingerprint of the status of a session.
func NewFingerprint(status *v1alpha1.ResponseSessionStatus) Fingerprint {
	written := *status
	written.Conditions = nil
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionChainValid); condition != nil {
		identifying := *condition
		identifying.Message, identifying.LastTransitionTime = "", metav1.Time{}
		written.Conditions = []metav1.Condition{identifying}
	}
	return FingerprintOf(written)
}

// FingerprintOf returns the fingerprint of a status of any kind. It covers every field.
func FingerprintOf(status any) Fingerprint {
	encoded, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("unable to marshal a status: %v", err)) // never: it has only strings, numbers and times
	}
	return Fingerprint(maphash.Bytes(seed, encoded))
}
