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
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// sse returns a stream with one event per data, named after its type.
func sse(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", gjson.Get(d, "type").Str, d)
	}
	return b.String()
}

// events returns the data of a stream's events.
func events(stream string) []reply {
	var all []reply
	for line := range strings.SplitSeq(stream, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			all = append(all, reply{body: data})
		}
	}
	return all
}

func kinds(stream string) []string {
	var all []string
	for _, e := range events(stream) {
		all = append(all, e.get("type"))
	}
	return all
}

// streamHandler is an engine that always sends the same stream.
func streamHandler(stream string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, stream)
	})
}

const (
	created   = `{"type":"response.created","sequence_number":0,"response":{"id":"up","status":"in_progress","output":[]}}`
	itemDone  = `{"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant"}}`
	unknown   = `{"type":"engine.note","sequence_number":5,"big":12345678901234567890, "z":1.0}`
	completed = `{"type":"response.completed","sequence_number":9,"response":{"id":"up","store":false,"status":"completed","output":[{"type":"message","id":"msg_1"}]}}`
)

// stepHandler is an engine whose stream consists of steps that the test sends. It closes gone if the gateway disconnects.
func stepHandler(steps <-chan string, gone chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case step, ok := <-steps:
				if !ok {
					return
				}
				_, _ = io.WriteString(w, step)
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	})
}

// open opens a stream and returns a reader of its lines.
func (f *fixture) open(ctx context.Context, body string) *bufio.Reader {
	f.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/responses", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	response, err := f.client.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = response.Body.Close() })
	return bufio.NewReader(response.Body)
}

// nextData returns the data of the next event, empty at the end of the stream.
func nextData(r *bufio.Reader) reply {
	for {
		line, err := r.ReadString('\n')
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return reply{body: strings.TrimSpace(data)}
		}
		if err != nil {
			return reply{}
		}
	}
}
