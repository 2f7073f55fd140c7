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

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// fullSessions and rejectedSessions count the sessions that were added to unwritable, by cause.
var (
	fullSessions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "catena_full_sessions_total",
		Help: "Number of times that a session was found to have no room for its status or its ownerReference, because its object is about as large as etcd permits.",
	})
	rejectedSessions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "catena_rejected_sessions_total",
		Help: "Number of times that the status or the ownerReference of a session was rejected because of its spec, which cannot be read.",
	})
)

func init() { metrics.Registry.MustRegister(fullSessions, rejectedSessions) }

// unwritable holds the sessions whose objects cannot take what the operator writes. They are not written again until their objects
// change. The resolve API has their verdicts.
type unwritable struct {
	mu       sync.Mutex
	versions map[types.NamespacedName]uint64 // the resource versions of the objects
}

// lastingCause returns the message and the counter of the reason why a write will fail until the object of a record changes, or nil if it
// may succeed before:
//
//   - An object that etcd has just accepted may exceed its limit with a status.
//   - The API server compares the spec of an immutable session with itself even if only its status is written, and cannot do so if a
//     time in it cannot be decoded. The pattern of times prevents new ones. A session without such a problem may be rejected because of
//     a CRD or a policy that will change, and is retried.
func lastingCause(err error, record *sessions.Record) (message string, count prometheus.Counter) {
	switch {
	case kubeclient.IsTooLargeForEtcd(err):
		return "The session has no room for what the operator writes, and is not written again until it changes", fullSessions
	case apierrors.IsInvalid(err) && record.Problem != "":
		return "The session's spec does not permit what the operator writes, and it is not written again until it changes", rejectedSessions
	}
	return "", nil
}

// has reports whether the object of a record cannot be written.
func (u *unwritable) has(record *sessions.Record) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	version, found := u.versions[record.NamespacedName()]
	return found && version == record.ResourceVersion
}

// add records that the object of a record cannot be written.
func (u *unwritable) add(record *sessions.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.versions == nil {
		u.versions = map[types.NamespacedName]uint64{}
	}
	u.versions[record.NamespacedName()] = record.ResourceVersion
}

// forget drops a session that has been changed or is gone.
func (u *unwritable) forget(name types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.versions, name)
}
