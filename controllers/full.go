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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/internal/operator/sessions"
)

// fullSessions counts the sessions that were added to full.
var fullSessions = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "catena_full_sessions_total",
	Help: "Number of times that a session was found to have no room for its status or its ownerReference, because its object is about as large as etcd permits.",
})

func init() { metrics.Registry.MustRegister(fullSessions) }

// full holds the objects that have no room for what the operator writes: an object that etcd has just accepted may exceed its
// limit with a status. They are not written again until they change. The resolve API has their verdicts.
type full struct {
	mu       sync.Mutex
	versions map[types.NamespacedName]uint64 // the resource versions of the objects
}

// has reports whether an object has no room.
func (f *full) has(object *sessions.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	version, found := f.versions[object.NamespacedName()]
	return found && version == object.ResourceVersion
}

// add records that an object has no room.
func (f *full) add(object *sessions.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.versions == nil {
		f.versions = map[types.NamespacedName]uint64{}
	}
	f.versions[object.NamespacedName()] = object.ResourceVersion
}

// forget drops an object that has been changed or is gone.
func (f *full) forget(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.versions, name)
}
