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

	"k8s.io/apimachinery/pkg/types"
)

// Keys returns the keys of the first sessions after a key, at most limit of them, sorted by namespace and name. If the
// namespace is empty, it includes all namespaces. To continue, pass the last key of one call to the next.
func (v *View) Keys(namespace string, after types.NamespacedName, limit int) []types.NamespacedName {
	namespaces := []string{namespace}
	if namespace == "" {
		v.mu.RLock()
		namespaces = slices.Sorted(maps.Keys(v.namespaces))
		v.mu.RUnlock()
	}
	return FirstKeys(namespaces, after, limit, func(name, after string, limit int) (names []string) {
		v.read(name, func(ns *namespaceView) { names = ns.first(after, limit) })
		return names
	})
}

// FirstKeys returns the keys of the first objects after a key, at most limit of them, sorted by namespace and name. It needs the sorted
// namespaces, and a function that returns the first names of a namespace after a name, sorted.
func FirstKeys(
	namespaces []string, after types.NamespacedName, limit int, first func(namespace, after string, limit int) []string,
) (keys []types.NamespacedName) {
	for _, namespace := range namespaces {
		if namespace < after.Namespace || len(keys) == limit {
			continue
		}
		afterName := ""
		if namespace == after.Namespace {
			afterName = after.Name
		}
		for _, name := range first(namespace, afterName, limit-len(keys)) {
			keys = append(keys, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	return keys
}

// CountOutdated returns the number of sessions that have an ownerReference to another version of the API.
func (v *View) CountOutdated() (count int) {
	v.readAll(func(ns *namespaceView) { count += ns.outdated.Len() })
	return count
}

// Outdated returns the resource versions of such sessions that are not settled, at most limit of each namespace.
func (v *View) Outdated(limit int) map[types.NamespacedName]string {
	versions := map[types.NamespacedName]string{}
	v.readAll(func(ns *namespaceView) {
		ns.outdated.Open(limit, func(name, version string) { versions[types.NamespacedName{Namespace: ns.name, Name: name}] = version })
	})
	return versions
}

// Settle marks a version of such a session as settled: Outdated does not return it again.
func (v *View) Settle(key types.NamespacedName, version string) {
	if ns := v.lock(key.Namespace); ns != nil {
		ns.outdated.Settle(key.Name, version)
		v.unlock(ns)
	}
}

// first returns the first object names after a name, at most limit of them, sorted. It never sorts more than twice limit names
// at once, because a namespace may have many more.
func (ns *namespaceView) first(after string, limit int) []string {
	names := make([]string, 0, min(2*limit, ns.sessions))
	for name := range ns.names() {
		if name <= after {
			continue
		}
		if len(names) == 2*limit {
			slices.Sort(names)
			names = names[:limit]
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names[:min(limit, len(names))]
}
