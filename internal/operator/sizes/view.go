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

// Package sizes is the leader's watch of objects of which it needs little more than the sizes: SnapshotChunks and ConversationSummaries.
package sizes

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/lean"
	"github.com/catena-dev/catena/internal/operator/outdated"
	"github.com/catena-dev/catena/internal/silence"
)

// maxDataSize is the size of spec.data of the largest chunk, in base64: the CRD's maxLength.
const maxDataSize = v1alpha1.MaxSnapshotChunkBytes / 3 * 4

// Usage is the storage that the objects of a namespace use, whether anything refers to them or not.
type Usage struct {
	// Objects is their number, and Bytes is their size. A chunk without the annotation that has the size of its data counts as one
	// of the largest.
	Objects int
	Bytes   int64
}

// View holds the size of every object of a kind. Run keeps it current. It is safe for concurrent use.
type View struct {
	kind       lean.Kind[*stored]
	age        *silence.Age
	mu         sync.RWMutex
	namespaces map[string]*namespace
	synced     atomic.Bool
}

// namespace holds the objects of one namespace: the size of each by name, the sum, and those with an ownerReference to another version
// of the API.
type namespace struct {
	sizes    map[string]int64
	bytes    int64
	outdated outdated.Set
}

// NewChunks returns an empty view of SnapshotChunks, of which only the metadata is read.
func NewChunks() *View {
	return newView(lean.Kind[*stored]{Resource: kubeclient.Chunks, Name: v1alpha1.SnapshotChunkKind, MetadataOnly: true, Parse: parseChunk})
}

// NewSummaries returns an empty view of ConversationSummaries.
func NewSummaries() *View {
	return newView(lean.Kind[*stored]{Resource: kubeclient.Summaries, Name: v1alpha1.ConversationSummaryKind, Parse: parseSummary})
}

func newView(kind lean.Kind[*stored]) *View {
	return &View{kind: kind, age: silence.NewAge(kind.Resource), namespaces: map[string]*namespace{}}
}

// Metric returns the age of the watch.
func (v *View) Metric() prometheus.Collector { return v.age }

// HasSynced reports whether the view has held all objects at least once.
func (v *View) HasSynced() bool { return v.synced.Load() }

// Usage returns the usage of a namespace.
func (v *View) Usage(name string) Usage {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces[name].usage()
}

// Usages returns the usage of each namespace.
func (v *View) Usages() map[string]Usage {
	v.mu.RLock()
	defer v.mu.RUnlock()
	usages := make(map[string]Usage, len(v.namespaces))
	for name, ns := range v.namespaces {
		usages[name] = ns.usage()
	}
	return usages
}

func (n *namespace) usage() Usage {
	if n == nil {
		return Usage{}
	}
	return Usage{Objects: len(n.sizes), Bytes: n.bytes}
}

// CountOutdated returns the number of objects that have an ownerReference to another version of the API.
func (v *View) CountOutdated() (count int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, ns := range v.namespaces {
		count += ns.outdated.Len()
	}
	return count
}

// Outdated returns the resource versions of such objects that are not settled, at most limit of each namespace.
func (v *View) Outdated(limit int) map[types.NamespacedName]string {
	v.mu.RLock()
	names := slices.Collect(maps.Keys(v.namespaces))
	v.mu.RUnlock()
	versions := map[types.NamespacedName]string{}
	for _, namespace := range names {
		v.mu.RLock() // for each, so that nothing waits for all
		if ns := v.namespaces[namespace]; ns != nil {
			ns.outdated.Open(limit, func(name, version string) {
				versions[types.NamespacedName{Namespace: namespace, Name: name}] = version
			})
		}
		v.mu.RUnlock()
	}
	return versions
}

// Settle marks a version of such an object as settled: Outdated does not return it again.
func (v *View) Settle(key types.NamespacedName, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ns := v.namespaces[key.Namespace]; ns != nil {
		ns.outdated.Settle(key.Name, version)
	}
}

// stored is the part of an object that the view needs.
type stored struct {
	namespace, name, version string
	bytes                    int64
	outdated                 bool // an ownerReference is to another version of the API
}

// parseChunk reads the metadata of a chunk as the API server has sent it.
func parseChunk(object gjson.Result) (metav1.ObjectMeta, *stored) {
	raw := jsonvalue.Members(object, "metadata")[0]
	metadata := kubeclient.ParseMetadata(raw)
	data, err := strconv.ParseInt(metadata.Annotations[v1alpha1.DataSizeAnnotation], 10, 64)
	if err != nil || data < 0 || data > maxDataSize {
		data = maxDataSize
	}
	return metadata, newStored(&metadata, int64(len(raw.Raw))+data)
}

// parseSummary reads a summary as the API server has sent it.
func parseSummary(object gjson.Result) (metav1.ObjectMeta, *stored) {
	metadata := kubeclient.ParseMetadata(jsonvalue.Members(object, "metadata")[0])
	return metadata, newStored(&metadata, int64(len(object.Raw)))
}

func newStored(metadata *metav1.ObjectMeta, bytes int64) *stored {
	return &stored{
		namespace: metadata.Namespace, name: metadata.Name, version: metadata.ResourceVersion, bytes: bytes,
		outdated: kubeclient.HasOutdatedOwner(metadata.OwnerReferences),
	}
}

func (n *namespace) set(c *stored) {
	n.bytes += c.bytes - n.sizes[c.name]
	n.sizes[c.name] = c.bytes
	if n.outdated.Delete(c.name); c.outdated {
		n.outdated.Put(c.name, c.version)
	}
}

func (v *View) set(c *stored) {
	v.mu.Lock()
	defer v.mu.Unlock()
	addTo(v.namespaces, c)
}

func addTo(namespaces map[string]*namespace, c *stored) {
	ns := namespaces[c.namespace]
	if ns == nil {
		ns = &namespace{sizes: map[string]int64{}}
		namespaces[c.namespace] = ns
	}
	ns.set(c)
}

func (v *View) remove(c *stored) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ns := v.namespaces[c.namespace]
	if ns == nil {
		return
	}
	ns.bytes -= ns.sizes[c.name]
	ns.outdated.Delete(c.name)
	if delete(ns.sizes, c.name); len(ns.sizes) == 0 {
		delete(v.namespaces, c.namespace)
	}
}

func (v *View) replace(all []*stored) {
	namespaces := map[string]*namespace{}
	for _, c := range all {
		addTo(namespaces, c)
	}
	v.mu.RLock()
	for name, ns := range namespaces {
		if known := v.namespaces[name]; known != nil {
			ns.outdated.SettleAs(&known.outdated)
		}
	}
	v.mu.RUnlock()
	v.mu.Lock()
	v.namespaces = namespaces
	v.mu.Unlock()
	v.synced.Store(true)
}
