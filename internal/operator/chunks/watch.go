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

package chunks

import (
	"context"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/silence"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks,verbs=list;watch

// Run watches the metadata of all chunks through a client of their group and version, and keeps the view current until ctx is
// done. It never gives up: while the API server is unreachable, it retries, and also while it is unresponsive if the client is
// limited by silence.Limit.
func (v *View) Run(ctx context.Context, client rest.Interface) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &metav1.List{}
			request := kubeclient.ListRequest(client, kubeclient.Chunks, &options).SetHeader("Accept", kubeclient.MetadataListOnly)
			metadata, err := kubeclient.StreamList(ctx, request, func(object gjson.Result) {
				list.Items = append(list.Items, runtime.RawExtension{Object: newChunk(object)})
			})
			list.ListMeta = metadata
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			request := kubeclient.ListRequest(client, kubeclient.Chunks, &options).SetHeader("Accept", kubeclient.MetadataOnly)
			return kubeclient.Watch(ctx, request, func(_ watch.EventType, object gjson.Result) runtime.Object { return newChunk(object) })
		},
	}
	reflector := cache.NewReflectorWithOptions(source, &chunk{}, (*store)(v), cache.ReflectorOptions{
		Name: kubeclient.Chunks, TypeDescription: v1alpha1.SnapshotChunkKind, MinWatchTimeout: silence.MinWatchTime,
	})
	v.age.Start()
	var ages sync.WaitGroup
	ages.Go(func() {
		v.age.Run(ctx, func(ctx context.Context) (uint64, error) {
			return kubeclient.CurrentVersion(ctx, client, kubeclient.Chunks, metav1.NamespaceSystem)
		})
	})
	reflector.RunWithContext(ctx)
	ages.Wait()
}

// store is the view as client-go's reflector uses it.
type store View

var _ cache.ResourceVersionUpdater = &store{}

func (s *store) Add(object any) error { return s.Update(object) }

func (s *store) Update(object any) error {
	(*View)(s).set(object.(*chunk))
	return nil
}

func (s *store) Delete(object any) error {
	(*View)(s).remove(object.(*chunk))
	return nil
}

func (s *store) Replace(objects []any, resourceVersion string) error {
	chunks := make([]*chunk, len(objects))
	for i, object := range objects {
		chunks[i] = object.(*chunk)
	}
	(*View)(s).replace(chunks)
	s.UpdateResourceVersion(resourceVersion)
	return nil
}

// Resync does nothing: the view has no other copy to compare itself with.
func (s *store) Resync() error { return nil }

// UpdateResourceVersion is called after each event, including bookmarks.
func (s *store) UpdateResourceVersion(resourceVersion string) {
	version, _ := strconv.ParseUint(resourceVersion, 10, 64) // Kubernetes has no other versions; 0 is older than all
	s.age.Received(version)
}
