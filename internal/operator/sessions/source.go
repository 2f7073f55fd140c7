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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

func (s *source) stream(ctx context.Context, options *metav1.ListOptions) (io.ReadCloser, error) {
	return kubeclient.ListRequest(s.client, kubeclient.Sessions, options).Stream(ctx)
}

func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	response, err := s.stream(ctx, &options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Close() }()
	list, ids := &metav1.List{}, knownIDs{}
	metadata, err := kubeclient.ReadList(response, func(object gjson.Result) {
		r := NewRecord(object, s.known)
		ids.share(r)
		list.Items = append(list.Items, runtime.RawExtension{Object: newItem(r)})
	})
	if err != nil {
		return nil, fmt.Errorf("unable to read a list of sessions: %w", err)
	}
	fields := jsonvalue.Members(metadata, "resourceVersion", "continue")
	list.ResourceVersion, list.Continue = fields[0].String(), fields[1].String()
	return list, nil
}

// knownIDs has the response IDs of a list, or of one page. Without it, each of its records would have its own copy of the parent's ID
// until all are in the view, and then leave a hole in the heap.
type knownIDs map[string]string

// share makes a record use the known strings.
func (ids knownIDs) share(r *Record) {
	for _, id := range []*string{&r.Turn.ID, &r.Turn.Previous} {
		if known, found := ids[*id]; found {
			*id = known
		} else {
			ids[*id] = *id
		}
	}
}

func newItem(r *Record) *item {
	o := &item{record: r}
	o.Namespace, o.Name, o.ResourceVersion = r.Namespace, r.Name, strconv.FormatUint(r.ResourceVersion, 10)
	return o
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	response, err := s.stream(ctx, &options)
	if err != nil {
		return nil, err
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	decoder := &events{source: s, response: response, lines: bufio.NewReaderSize(response, 64<<10)}
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		decoder.listed = knownIDs{}
	}
	return watch.NewStreamWatcher(decoder, reporter), nil
}

// events decodes the events of a watch, one per line.
type events struct {
	source   *source
	response io.Closer
	lines    *bufio.Reader
	buffer   bytes.Buffer
	// listed has the response IDs of a list. It is nil once the events begin that are not part of one.
	listed knownIDs
}

var _ watch.Decoder = &events{}

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	line, err := e.line()
	if err != nil {
		return "", nil, err
	}
	fields := jsonvalue.Members(gjson.Parse(jsonvalue.Text(line)), "type", "object") // valid until the next line is read
	kind, value := watch.EventType(strings.Clone(fields[0].Str)), fields[1]
	switch kind {
	case watch.Added, watch.Modified, watch.Deleted:
		return kind, newItem(e.record(kind, value)), nil
	case watch.Bookmark:
		o := &item{}
		o.ObjectMeta = parseMetadata(jsonvalue.Members(value, "metadata")[0])
		if o.Annotations[metav1.InitialEventsAnnotationKey] != "" { // the list ends
			e.listed = nil
		}
		return kind, o, nil
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal([]byte(value.Raw), status); err != nil {
			return "", nil, fmt.Errorf("unable to decode an error event: %w", err)
		}
		return kind, status, nil
	}
	return "", nil, fmt.Errorf("unknown event type %.32q", kind)
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

// line returns the next line that is not empty.
func (e *events) line() ([]byte, error) {
	if e.buffer.Cap() > kubeclient.KeptBytes {
		e.buffer = bytes.Buffer{} // do not keep the memory of one large event
	}
	e.buffer.Reset()
	for {
		part, err := e.lines.ReadSlice('\n')
		e.buffer.Write(part)
		switch {
		case e.buffer.Len() > kubeclient.MaxObjectBytes:
			return nil, fmt.Errorf("an event has more than %d bytes", kubeclient.MaxObjectBytes)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && len(bytes.TrimSpace(e.buffer.Bytes())) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(bytes.TrimSpace(e.buffer.Bytes())) > 0:
			return e.buffer.Bytes(), nil
		}
		e.buffer.Reset()
	}
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.response.Close() }
