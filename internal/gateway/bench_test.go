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

package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// discard is an http.ResponseWriter for which nobody waits.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (discard) WriteHeader(int)                  {}
func (discard) Write(p []byte) (int, error)      { return len(p), nil }
func (discard) FlushError() error                { return nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkStream forwards and saves a turn whose answer has a thousand words.
func BenchmarkStream(b *testing.B) {
	f := newFixture(b, nil)
	g, last := f.gateway, ""
	body := `{"model":"scripted","store":false,"stream":true,"input":` + quote(strings.Repeat("word ", 1000)) + "}"
	recorded := httptest.NewRecorder()
	enginetest.Handler().ServeHTTP(recorded, httptest.NewRequest(http.MethodPost, "/v1/responses", strings.NewReader(body)))
	object, err := parseObject([]byte(body))
	if err != nil {
		b.Fatal(err)
	}
	stream := recorded.Body.String()
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		engine := &http.Response{Header: recorded.Header(), Body: io.NopCloser(strings.NewReader(stream))}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		c := &call{log: g.log, store: g.options.Store}
		if err := g.admit(c); err != nil {
			b.Fatal(err)
		}
		t := &turn{id: g.newResponseID(r, c), request: &createRequest{object: object, body: jsonvalue.Bytes(body), stream: true, store: true}}
		if err := g.stream(discard{http.Header{}}, r, c, t, engine); err != nil {
			b.Fatal(err)
		}
		c.release()
		last = t.id
	}
	if s := f.saved(last); s == nil || s.Status != store.StatusCompleted {
		b.Fatalf("the last turn is %+v", s)
	}
	if events := strings.Count(stream, "\n\n"); events < 1000 {
		b.Fatalf("the stream has %d events", events)
	}
}
