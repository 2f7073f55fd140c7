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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/store/driver"
)

// answer is an InputItems of which only the metadata is set. Turns and items are written straight into the response,
// because the encoders of Kubernetes read, check and copy raw JSON several times.
type answer struct {
	resolvev1alpha1.InputItems
	*history.Page
	history *resolve.Result
}

var (
	_ runtime.Object        = &answer{}
	_ rest.ResourceStreamer = &answer{}
)

// newAnswer returns the page of a history that the options ask for. It returns a badRequest if their cursor does not belong
// to this history and these options.
func newAnswer(namespace string, h *resolve.Result, options driver.ResolveOptions) (*answer, error) {
	page, err := history.New(string(h.UID), h.Turns, options)
	if err != nil {
		return nil, badRequest(`query parameter "after" is invalid: ` + err.Error())
	}
	return &answer{
		InputItems: resolvev1alpha1.InputItems{
			TypeMeta: metav1.TypeMeta{
				APIVersion: resolvev1alpha1.GroupVersion.String(),
				Kind:       "InputItems",
			},
			ObjectMeta: metav1.ObjectMeta{Name: h.Name, Namespace: namespace, UID: h.UID},
		},
		Page:    page,
		history: h,
	}, nil
}

// DeepCopyObject returns a copy that shares the history, which is never changed.
func (a *answer) DeepCopyObject() runtime.Object {
	return &answer{InputItems: *a.InputItems.DeepCopy(), Page: a.Page, history: a.history}
}

// The limits of tables and YAML, which take many times the memory of the JSON. A page is always within them.
const (
	maxTableRows  = 10_000
	maxYAMLBytes  = 16 << 20
	maxYAMLValues = 100_000
	maxYAMLAtOnce = 2
)

// yamlSlots limits how many answers are converted to YAML at the same time.
var yamlSlots = semaphore.NewWeighted(maxYAMLAtOnce)

// InputStream returns the InputItems as JSON or, if the client prefers it, as YAML.
func (a *answer) InputStream(ctx context.Context, _, accept string) (io.ReadCloser, bool, string, error) {
	negotiated, ok := negotiation.NegotiateMediaTypeOptions(accept, codecs.SupportedMediaTypes(), negotiation.DefaultEndpointRestrictions)
	if !ok {
		return nil, false, "", negotiation.NewNotAcceptableError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
	}
	body, contentType := a.json(), negotiated.Accepted.MediaType
	if contentType == runtime.ContentTypeYAML {
		var err error
		if body, err = toYAML(ctx, body); err != nil {
			return nil, false, "", err
		}
	}
	bytesTotal.Add(float64(len(body)))
	return io.NopCloser(bytes.NewReader(body)), false, contentType, nil
}

func toYAML(ctx context.Context, body []byte) ([]byte, error) {
	if values := bytes.Count(body, []byte(",")) + bytes.Count(body, []byte(":")); len(body) > maxYAMLBytes || values > maxYAMLValues {
		return nil, tooLarge("the answer is too large for YAML")
	}
	if err := yamlSlots.Acquire(ctx, 1); err != nil {
		return nil, newTimeout("too many answers are being written as YAML")
	}
	defer yamlSlots.Release(1)
	body, err := yaml.JSONToYAML(body)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("unable to write the items as YAML: %w", err))
	}
	return body, nil
}

func tooLarge(message string) error {
	return apierrors.NewRequestEntityTooLargeError(message + ": ask for JSON, or for pages with `limit`")
}

// json returns the InputItems as JSON, in one buffer of exactly that size.
func (a *answer) json() []byte {
	w := writer{}
	a.write(&w)
	w.buffer = make([]byte, 0, w.size)
	a.write(&w)
	return w.buffer
}

func (a *answer) write(w *writer) {
	w.raw(`{"kind":`).string(a.Kind).raw(`,"apiVersion":`).string(a.APIVersion)
	w.raw(`,"metadata":{"name":`).string(a.Name).raw(`,"namespace":`).string(a.Namespace).raw(`,"uid":`).string(string(a.UID))
	w.raw(`},"responseID":`).string(a.history.ResponseID)
	w.raw(`,"turns":[`)
	for i, turn := range a.history.Turns {
		if i > 0 {
			w.raw(",")
		}
		w.string(turn.ResponseID)
	}
	w.raw(`],"input":[`)
	separator := ""
	for items := range a.Raw() {
		w.raw(separator).bytes(items)
		separator = ","
	}
	w.raw("]")
	if next := a.Page.Next(); next != "" {
		w.raw(`,"next":`).string(next)
	}
	w.raw("}\n")
}

// writer appends to its buffer or, if it has none yet, adds up the size that the buffer needs.
type writer struct {
	buffer []byte
	size   int
}

func (w *writer) raw(s string) *writer {
	if w.buffer == nil {
		w.size += len(s)
	} else {
		w.buffer = append(w.buffer, s...)
	}
	return w
}

func (w *writer) bytes(b []byte) {
	if w.buffer == nil {
		w.size += len(b)
	} else {
		w.buffer = append(w.buffer, b...)
	}
}

// string writes s as a JSON string.
func (w *writer) string(s string) *writer {
	if isPlain(s) {
		return w.raw(`"`).raw(s).raw(`"`)
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("unable to marshal a string: %v", err)) // never: every string can be
	}
	w.bytes(b)
	return w
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
