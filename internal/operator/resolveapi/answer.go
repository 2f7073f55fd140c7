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

package resolveapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/store/driver"
)

// object is an object of one of the resources with histories.
type object interface {
	runtime.Object
	metav1.Object
}

// answer is an InputItems or a ConversationItems with only its metadata set. Turns and items are written straight into the response, because
// the encoders of Kubernetes read, check and copy raw JSON several times.
type answer struct {
	object
	*history.Page // nil if the caller has the answer already
	history       *resolve.Result
	options       driver.ResolveOptions
	etag          string
}

var (
	_ runtime.Object        = &answer{}
	_ rest.ResourceStreamer = &answer{}
)

// newAnswer returns the page of a history that the options request, or only its ETag if the history is unchanged. It returns a badRequest if
// their cursor does not belong to this history and these options.
func newAnswer(namespace string, h *resolve.Result, options driver.ResolveOptions) (*answer, error) {
	a := &answer{object: newObject(namespace, h), history: h, options: options, etag: etagOf(namespace, h, options)}
	if h.Unchanged {
		return a, nil
	}
	var err error
	if a.Page, err = newPage(h, options); err != nil {
		return nil, badRequest(`query parameter "after" is invalid: ` + err.Error())
	}
	return a, nil
}

// newObject returns the object of an answer with only its metadata set.
func newObject(namespace string, h *resolve.Result) object {
	typeMeta := metav1.TypeMeta{APIVersion: resolvev1alpha1.GroupVersion.String(), Kind: "InputItems"}
	meta := metav1.ObjectMeta{Name: h.Name, Namespace: namespace, UID: h.UID}
	if h.Conversation == nil {
		return &resolvev1alpha1.InputItems{TypeMeta: typeMeta, ObjectMeta: meta}
	}
	typeMeta.Kind, meta.Name, meta.UID = "ConversationItems", h.Conversation.Name, h.Conversation.UID
	return &resolvev1alpha1.ConversationItems{TypeMeta: typeMeta, ObjectMeta: meta}
}

// newPage returns the page of a history that the options request, without hidden items.
func newPage(h *resolve.Result, options driver.ResolveOptions) (*history.Page, error) {
	page, err := history.New(string(h.UID), h.Turns, options)
	if err == nil && h.Conversation != nil {
		page.Hide(h.Conversation.Hidden)
	}
	return page, err
}

// next returns the cursor of the next page.
func (a *answer) next() string {
	if a.history.Conversation == nil {
		return a.Page.Next()
	}
	return history.Unbound(a.Page.Next(), a.options)
}

// DeepCopyObject returns a copy that shares the history, which is never changed.
func (a *answer) DeepCopyObject() runtime.Object {
	copied := *a
	copied.object = a.object.DeepCopyObject().(object)
	return &copied
}

// InputStream returns the InputItems as JSON, or nothing if the caller has them already. It sets the ETag of a conditional request.
func (a *answer) InputStream(ctx context.Context, _, accept string) (io.ReadCloser, bool, string, error) {
	_, ok := negotiation.NegotiateMediaTypeOptions(accept, codecs.SupportedMediaTypes(), negotiation.DefaultEndpointRestrictions)
	if !ok {
		return nil, false, "", negotiation.NewNotAcceptableError([]string{runtime.ContentTypeJSON})
	}
	if c := conditionalOf(ctx); c != nil {
		c.Header().Set("ETag", a.etag)
		if c.notModified = a.Page == nil; c.notModified {
			return nil, false, "", nil
		}
	}
	return &stream{answer: a}, false, runtime.ContentTypeJSON, nil
}

// stream is an answer that is being sent. It is generated while it is sent, so that it takes little memory besides the items,
// which other answers share, however slowly its client reads.
type stream struct{ answer *answer }

var _ io.WriterTo = &stream{}

// WriteTo implements io.WriterTo, which sends the answer.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	n, err := s.answer.WriteTo(w)
	bytesTotal.Add(float64(n))
	return n, err
}

// Read implements io.Reader, which io.Copy does not call.
func (*stream) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close implements io.Closer.
func (*stream) Close() error { return nil }

// WriteTo writes the InputItems as JSON, with the items straight from the history.
func (a *answer) WriteTo(to io.Writer) (int64, error) {
	w := writer{buffer: writeBuffers.Get().(*bufio.Writer)}
	w.buffer.Reset(to)
	defer func() {
		w.buffer.Reset(nil)
		writeBuffers.Put(w.buffer)
	}()
	version, kind := a.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	w.raw(`{"kind":`).string(kind).raw(`,"apiVersion":`).string(version)
	w.raw(`,"metadata":{"name":`).string(a.GetName()).raw(`,"namespace":`).string(a.GetNamespace()).raw(`,"uid":`).string(string(a.GetUID()))
	w.raw("}")
	if a.history.Conversation != nil {
		w.raw(`,"conversationID":`).string(a.history.Conversation.ID)
	}
	w.optional("responseID", a.history.ResponseID)
	w.raw(`,"turns":[`)
	for i, turn := range a.history.Turns {
		if i > 0 {
			w.raw(",")
		}
		w.string(turn.ResponseID)
	}
	w.raw("]")
	w.optional("previousResponseID", a.history.PreviousResponseID())
	w.raw(`,"input":[`)
	separator := ""
	for items := range a.Raw() {
		if w.raw(separator).bytes(items).err != nil {
			break
		}
		separator = ","
	}
	w.raw("]")
	w.origins(a.Page.Origins())
	w.strings("digests", a.Page.Digests())
	w.optional("next", a.next())
	w.raw("}\n")
	w.note(0, w.buffer.Flush())
	return w.size, w.err
}

// writeBuffer is the size of the pieces in which an answer is sent. Larger items are pieces of their own. For each piece, the request's
// goroutine waits for that of its connection.
const writeBuffer = 64 << 10

var writeBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBuffer) }}

// writer counts the bytes that it writes, and keeps the first error.
type writer struct {
	buffer *bufio.Writer
	size   int64
	err    error
}

func (w *writer) note(n int, err error) *writer {
	w.size += int64(n)
	if w.err == nil {
		w.err = err
	}
	return w
}

// origins writes a member with the origins, if there are any.
func (w *writer) origins(origins []driver.Origin) {
	separator := `,"origins":[`
	for _, o := range origins {
		w.raw(separator).raw(`{"responseID":`).string(o.ResponseID)
		w.raw(`,"first":` + strconv.Itoa(o.First) + `,"count":` + strconv.Itoa(o.Count) + "}")
		separator = ","
	}
	if len(origins) > 0 {
		w.raw("]")
	}
}

// optional writes a member with a string, unless it is empty.
func (w *writer) optional(name, s string) {
	if s != "" {
		w.raw(`,"` + name + `":`).string(s)
	}
}

// strings writes a member with a list of strings, if there are any.
func (w *writer) strings(name string, all []string) {
	separator := `,"` + name + `":[`
	for _, s := range all {
		w.raw(separator).string(s)
		separator = ","
	}
	if len(all) > 0 {
		w.raw("]")
	}
}

func (w *writer) raw(s string) *writer { return w.note(w.buffer.WriteString(s)) }

func (w *writer) bytes(b []byte) *writer { return w.note(w.buffer.Write(b)) }

// string writes s as a JSON string.
func (w *writer) string(s string) *writer {
	if isPlain(s) {
		return w.raw(`"`).raw(s).raw(`"`)
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("unable to marshal a string: %v", err)) // never: every string can be marshaled
	}
	return w.bytes(b)
}

// isPlain reports whether s needs no escapes in JSON.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
