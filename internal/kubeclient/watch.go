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

package kubeclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// Watch begins the watch for which ListRequest has made a request. It reads each event separately, so that an object that Go cannot decode does
// not affect the others, and calls object for the object of each event, also of bookmarks, but not of errors. The argument is valid until
// object returns.
func Watch(
	ctx context.Context, request *rest.Request, object func(watch.EventType, gjson.Result) runtime.Object,
) (watch.Interface, error) {
	response, err := request.Param("watch", "true").Stream(ctx)
	if err != nil {
		return nil, err
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return watch.NewStreamWatcher(&events{object: object, response: response, lines: bufio.NewReaderSize(response, 64<<10)}, reporter), nil
}

// events decodes the events of a watch, one per line.
type events struct {
	object   func(watch.EventType, gjson.Result) runtime.Object
	response io.Closer
	lines    *bufio.Reader
	buffer   bytes.Buffer
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
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		return kind, e.object(kind, value), nil
	case watch.Error:
		status := &metav1.Status{}
		if err := json.Unmarshal([]byte(value.Raw), status); err != nil {
			return "", nil, fmt.Errorf("unable to decode an error event: %w", err)
		}
		return kind, status, nil
	}
	return "", nil, fmt.Errorf("unknown event type %.32q", kind)
}

// line returns the next line that is not empty.
func (e *events) line() ([]byte, error) {
	if e.buffer.Cap() > keptBytes {
		e.buffer = bytes.Buffer{} // do not keep the memory of one large event
	}
	e.buffer.Reset()
	for {
		part, err := e.lines.ReadSlice('\n')
		e.buffer.Write(part)
		switch {
		case e.buffer.Len() > maxObjectBytes:
			return nil, fmt.Errorf("an event has more than %d bytes", maxObjectBytes)
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
