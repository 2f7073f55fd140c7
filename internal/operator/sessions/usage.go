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
	"maps"
	"slices"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// maxBucketBytes is the size above which a snapshot in a bucket does not count as larger: 1 TiB. The size comes from the
// session unchecked, and sums must not overflow.
const maxBucketBytes = 1 << 40

// Usage is the storage that the sessions of a namespace use.
type Usage struct {
	// Sessions is the number of ResponseSessions, including those that are not in a chain.
	Sessions int
	// Bytes is the size of their objects and of their snapshots in a bucket. Chunks are not included: not every chunk belongs to
	// a session.
	Bytes int64
}

// Usage returns the usage of a namespace. It includes the changes that the API server has sent and that have not been applied: while a namespace
// has many of them, it could otherwise store much more than its quota.
func (v *View) Usage(namespace string) (usage Usage) {
	waiting := v.feeds.changes(namespace)
	known := make([]*Record, len(waiting))
	v.read(namespace, func(ns *namespaceView) {
		usage = ns.usage()
		for i, e := range waiting {
			known[i] = ns.get(e.name)
		}
	})
	for i, e := range waiting {
		usage.change(known[i], e.record)
	}
	return usage
}

// change replaces a session by the next one of the same name. Each is nil if it does not exist.
func (u *Usage) change(known, next *Record) {
	if known != nil {
		u.Sessions--
		u.Bytes -= known.storedBytes()
	}
	if next != nil {
		u.Sessions++
		u.Bytes += next.storedBytes()
	}
}

// Sessions returns the number of ResponseSessions of a namespace or, if it is empty, of all namespaces.
func (v *View) Sessions(namespace string) (sessions int) {
	if namespace != "" {
		v.read(namespace, func(ns *namespaceView) { sessions = ns.sessions })
		return sessions
	}
	v.readAll(func(ns *namespaceView) { sessions += ns.sessions })
	return sessions
}

// Usages returns the usage of each namespace.
func (v *View) Usages() map[string]Usage {
	usages := map[string]Usage{}
	names := v.feeds.namespaces()
	v.mu.RLock()
	names = slices.AppendSeq(names, maps.Keys(v.namespaces))
	v.mu.RUnlock()
	for _, name := range names {
		if usage := v.Usage(name); usage != (Usage{}) {
			usages[name] = usage
		}
	}
	return usages
}

func (ns *namespaceView) usage() Usage { return Usage{Sessions: ns.sessions, Bytes: ns.bytes} }

// storedBytes returns the number of bytes that a session adds to Usage.Bytes.
func (r *Record) storedBytes() int64 {
	bytes := int64(r.ObjectBytes)
	if s := r.Snapshot(); s != nil && s.Store == v1alpha1.SnapshotStoreBlob {
		bytes += max(0, min(s.StoredBytes, maxBucketBytes))
	}
	return bytes
}

// resize corrects the size of an object. The responses to the operator's own writes, which are applied to the view before the
// watch delivers them, do not contain it.
func (ns *namespaceView) resize(known *Record, bytes int32) {
	if known.ObjectBytes == bytes {
		return
	}
	next := *known
	next.ObjectBytes = bytes
	ns.keep(&next) // the same turn, so no verdict changes
}
