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

// Package lean watches all objects of a kind, and keeps a small part of each.
package lean

import (
	"context"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/silence"
)

// Kind is what Watch watches.
//
// The API server stores objects that Go cannot decode: integers beyond an int64, values that are nested too deeply. In an informer, one of
// them would stop the watch for all tenants. So every object is parsed separately, by a function that never fails.
type Kind[T any] struct {
	// Resource and Name are those of the kind.
	Resource, Name string
	// MetadataOnly requests only the metadata of the objects.
	MetadataOnly bool
	// Parse returns the metadata of an object as the API server has sent it, and the part of it that is kept. Neither may share memory
	// with the argument.
	Parse func(object gjson.Result) (metav1.ObjectMeta, T)
}

// Store is what Watch keeps current. Its methods are not called concurrently.
type Store[T any] interface {
	// Set adds or replaces an object.
	Set(T)
	// Remove removes an object.
	Remove(T)
	// Replace replaces all objects.
	Replace([]T)
}

// Watch watches all objects of a kind through a client of its group and version, and keeps a store and its age current until ctx is
// done. It never gives up: while the API server is unreachable, it retries, and also while it is unresponsive if the client is
// limited by silence.Limit.
func Watch[T any](ctx context.Context, client rest.Interface, kind Kind[T], store Store[T], age *silence.Age) {
	reflector := cache.NewReflectorWithOptions(kind.listWatch(client), &item[T]{}, &reflected[T]{store, age}, cache.ReflectorOptions{
		Name: kind.Resource, TypeDescription: kind.Name, MinWatchTimeout: silence.MinWatchTime,
	})
	age.Start()
	var ages sync.WaitGroup
	ages.Go(func() {
		age.Run(ctx, func(ctx context.Context) (uint64, error) {
			return kubeclient.CurrentVersion(ctx, client, kind.Resource, metav1.NamespaceSystem)
		})
	})
	reflector.RunWithContext(ctx)
	ages.Wait()
}

func (k *Kind[T]) listWatch(client rest.Interface) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &metav1.List{}
			metadata, err := kubeclient.StreamList(ctx, k.request(client, &options, kubeclient.MetadataListOnly), func(object gjson.Result) {
				list.Items = append(list.Items, runtime.RawExtension{Object: k.item(watch.Added, object)})
			})
			list.ListMeta = metadata
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return kubeclient.Watch(ctx, k.request(client, &options, kubeclient.MetadataOnly), k.item)
		},
	}
}

func (k *Kind[T]) request(client rest.Interface, options *metav1.ListOptions, metadataOnly string) *rest.Request {
	request := kubeclient.ListRequest(client, k.Resource, options)
	if k.MetadataOnly {
		request.SetHeader("Accept", metadataOnly)
	}
	return request
}

// item is an object, or a bookmark, in the form that client-go's reflector handles. It is small, because the reflector holds the items of a
// whole list.
type item[T any] struct {
	namespace, name, version string
	lastOfList               bool // a bookmark that ends a streamed list
	value                    T
}

// item returns the object of an event.
func (k *Kind[T]) item(event watch.EventType, object gjson.Result) runtime.Object {
	i := &item[T]{}
	var metadata metav1.ObjectMeta
	if event == watch.Bookmark {
		metadata = kubeclient.ParseMetadata(jsonvalue.Members(object, "metadata")[0])
		i.lastOfList = metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
	} else {
		metadata, i.value = k.Parse(object)
	}
	i.namespace, i.name, i.version = metadata.Namespace, metadata.Name, metadata.ResourceVersion
	return i
}

// GetObjectMeta returns the metadata that client-go's reflector needs.
func (i *item[T]) GetObjectMeta() metav1.Object {
	metadata := &metav1.ObjectMeta{Namespace: i.namespace, Name: i.name, ResourceVersion: i.version}
	if i.lastOfList {
		metadata.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return metadata
}

// GetObjectKind returns no kind: items are not encoded.
func (i *item[T]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns a copy.
func (i *item[T]) DeepCopyObject() runtime.Object {
	copied := *i
	return &copied
}

// reflected is a store as client-go's reflector uses it.
type reflected[T any] struct {
	store Store[T]
	age   *silence.Age
}

func (r *reflected[T]) Add(object any) error { return r.Update(object) }

func (r *reflected[T]) Update(object any) error {
	r.store.Set(object.(*item[T]).value)
	return nil
}

func (r *reflected[T]) Delete(object any) error {
	r.store.Remove(object.(*item[T]).value)
	return nil
}

func (r *reflected[T]) Replace(objects []any, resourceVersion string) error {
	values := make([]T, len(objects))
	for i, object := range objects {
		values[i] = object.(*item[T]).value
	}
	r.store.Replace(values)
	r.UpdateResourceVersion(resourceVersion)
	return nil
}

// Resync does nothing: the store has no other copy to compare itself with.
func (r *reflected[T]) Resync() error { return nil }

var _ cache.ResourceVersionUpdater = &reflected[any]{}

// UpdateResourceVersion is called after each event, including bookmarks.
func (r *reflected[T]) UpdateResourceVersion(resourceVersion string) {
	version, _ := strconv.ParseUint(resourceVersion, 10, 64) // Kubernetes has no other versions; 0 is older than all
	r.age.Received(version)
}
