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
	"context"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// item is a record in the form that client-go's reflector handles.
type item struct {
	metav1.PartialObjectMetadata
	record *Record
}

// DeepCopyObject implements runtime.Object. Records are never changed.
func (i *item) DeepCopyObject() runtime.Object {
	return &item{*i.PartialObjectMetadata.DeepCopy(), i.record}
}

// source lists and watches the sessions. It parses each object separately, so that one that cannot be decoded does not affect
// the others.
type source struct {
	client rest.Interface
	known  func(namespace, name string) *Record
	keep   KeepFunc
}

func (s *source) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
}

func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, ids := &metav1.List{}, knownIDs{}
	metadata, err := kubeclient.StreamList(ctx, kubeclient.ListRequest(s.client, kubeclient.Sessions, &options), func(object gjson.Result) {
		r := NewRecord(object, s.known)
		ids.share(r)
		list.Items = append(list.Items, runtime.RawExtension{Object: newItem(r)})
	})
	list.ListMeta = metadata
	return list, err
}

// knownIDs has the response IDs of a list, or of one page. Without it, each of its records would have its own copy of the parent's ID
// until all are in the view, and then leave a hole in the heap.
type knownIDs map[string]string

// share makes a record use the known strings.
func (ids knownIDs) share(r *Record) {
	if known, found := ids[r.Turn.ID]; found {
		r.Name, r.Turn.ID = strings.Clone(r.Name), known // they were together
	} else {
		ids[r.Turn.ID] = r.Turn.ID
	}
	if known, found := ids[r.Turn.Previous]; found {
		r.Turn.Previous = known
	} else {
		ids[r.Turn.Previous] = r.Turn.Previous
	}
}

func newItem(r *Record) *item {
	o := &item{record: r}
	o.Namespace, o.Name, o.ResourceVersion = r.Namespace, r.Name, strconv.FormatUint(r.ResourceVersion, 10)
	return o
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	e := &events{source: s}
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		e.listed = knownIDs{}
	}
	return kubeclient.Watch(ctx, kubeclient.ListRequest(s.client, kubeclient.Sessions, &options), e.item)
}

// events are those of one watch.
type events struct {
	source *source
	// listed has the response IDs of a list. It is nil once the events begin that are not part of one.
	listed knownIDs
}

// item returns the object of an event.
func (e *events) item(kind watch.EventType, value gjson.Result) runtime.Object {
	if kind != watch.Bookmark {
		return newItem(e.record(kind, value))
	}
	o := &item{}
	o.ObjectMeta = kubeclient.ParseMetadata(jsonvalue.Members(value, "metadata")[0])
	if o.Annotations[metav1.InitialEventsAnnotationKey] != "" { // the list ends
		e.listed = nil
	}
	return o
}

// maxKeptBytes is the maximum size of bodies whose items are passed on. The items of larger ones take much longer to make than to check.
const maxKeptBytes = 64 << 10

// record returns the record of an object, and passes on the items of a turn that has just been saved.
func (e *events) record(kind watch.EventType, value gjson.Result) *Record {
	if e.listed != nil {
		r := NewRecord(value, e.source.known)
		e.listed.share(r)
		return r
	}
	if e.source.keep == nil || kind == watch.Deleted {
		return NewRecord(value, e.source.known)
	}
	r, items := newRecord(value, e.source.known, maxKeptBytes)
	if items != nil {
		e.source.keep(r, items)
	}
	return r
}
