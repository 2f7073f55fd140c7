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

package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// attempts are the statuses whose write has failed. The API server may have stored one anyway if only its response was lost. So
// the write is retried with the same timestamps, and nothing is written twice.
type attempts struct {
	mu     sync.Mutex
	failed map[types.NamespacedName]attempt
}

type attempt struct {
	uid    types.UID
	status *v1alpha1.ResponseSessionStatus
}

// repeat returns the status of a failed write of the same status, and otherwise status itself.
func (a *attempts) repeat(record *sessions.Record, status *v1alpha1.ResponseSessionStatus) *v1alpha1.ResponseSessionStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, found := a.failed[record.NamespacedName()]
	if found && before.uid == record.UID && sessions.NewFingerprint(before.status) == sessions.NewFingerprint(status) {
		return before.status
	}
	return status
}

// failedWith records that the write of a status has failed.
func (a *attempts) failedWith(record *sessions.Record, status *v1alpha1.ResponseSessionStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = map[types.NamespacedName]attempt{}
	}
	a.failed[record.NamespacedName()] = attempt{record.UID, status}
}

// forget drops the failed status of a session whose status is now written or which is gone.
func (a *attempts) forget(name types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failed, name)
}
