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

package enginetest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// The models of the strict engine.
const (
	// ModelStrict answers with all members of a Response, and never repeats an ID.
	ModelStrict = "strict"

	// ModelReasoning is the same model with a name that clients know, who treat its items as those of a reasoning model.
	ModelReasoning = "gpt-5"

	// ModelThin answers only with the members of a Response that every engine has.
	ModelThin = "thin"

	// ModelRestarted begins its IDs again with every response, as an engine does that has been restarted in between. Only those
	// of function calls are never repeated.
	ModelRestarted = "restarted"
)

// What the models of the strict engine do.
type variant struct{ thin, restarted bool }

var variants = map[string]variant{
	ModelStrict:    {},
	ModelReasoning: {},
	ModelThin:      {thin: true},
	ModelRestarted: {restarted: true},
}

// object is a JSON object.
type object = map[string]any

// strict is an engine that keeps no conversations. It remembers what it has issued only to recognise it.
type strict struct {
	mu sync.Mutex
	// issued has the fingerprints of all items by ID, except those of ModelRestarted. Responses have an entry as well.
	issued map[string]string
	last   int
}

// Strict returns the handler of a second engine, which is as strict as OpenAI with store: false. It rejects all requests that
// need state: IDs of responses, references to items, and items with IDs other than its own or with a different content. It has
// all members and events of OpenAI's API, except with ModelThin.
//
// Each line of the last user message, or of the function outputs that follow it, instructs the engine:
//
//	call NAME [ARGUMENTS]   calls a function; several lines call functions in parallel
//	hosted                  adds an item of each tool of OpenAI's, a message with a citation and a refusal, and a call of a custom tool
//	reason                  adds a reasoning item with encrypted content before all other items
//	cut off                 ends as incomplete, in the middle of the message
//	fail                    fails, as a stream after the first piece of the message
//	stall                   sends nothing more until the client disconnects, as a stream after the first piece of the message
//	break off               closes the connection, as a stream after the first piece of the message
//
// If it calls no function, it answers with a message that shows what the request contained.
func Strict() http.Handler {
	e := &strict{issued: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", e.create)
	mux.HandleFunc("POST /v1/responses/input_tokens", e.inputTokens)
	mux.HandleFunc("POST /v1/responses/compact", e.compact)
	mux.HandleFunc("GET /v1/models", e.models)
	return mux
}

func (e *strict) models(w http.ResponseWriter, _ *http.Request) {
	var data []any
	for _, id := range slices.Sorted(maps.Keys(variants)) {
		data = append(data, object{"id": id, "object": "model", "created": 0, "owned_by": "catena"})
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": data})
}

func (e *strict) create(w http.ResponseWriter, r *http.Request) {
	request, ok := e.read(w, r)
	if !ok {
		return
	}
	if refusal := checkStore(request); refusal != nil {
		writeError(w, http.StatusBadRequest, refusal)
		return
	}
	a := e.answer(request)
	switch {
	case request.Get("stream").Bool():
		a.stream(w, r)
	case a.end == stalls:
		<-r.Context().Done()
	case a.end == breaks:
		panic(http.ErrAbortHandler)
	case a.end == fails:
		writeError(w, http.StatusInternalServerError, &refusal{kind: "server_error", code: "server_error", message: failureMessage})
	default:
		writeJSON(w, http.StatusOK, a.response(a.end, a.items))
	}
}

// read returns a valid request, or writes why it is rejected.
func (e *strict) read(w http.ResponseWriter, r *http.Request) (request gjson.Result, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil || jsonvalue.Validate(body) != nil {
		writeError(w, http.StatusBadRequest, refuse("", "", "We could not parse the JSON body of your request."))
		return request, false
	}
	request = gjson.ParseBytes(body)
	if refusal := e.check(request); refusal != nil {
		writeError(w, http.StatusBadRequest, refusal)
		return request, false
	}
	return request, true
}

func (e *strict) inputTokens(w http.ResponseWriter, r *http.Request) {
	request, ok := e.read(w, r)
	if !ok {
		return
	}
	count := object{"input_tokens": usageOf(request, nil)["input_tokens"]}
	if !variants[request.Get("model").Str].thin {
		count["object"] = "response.input_tokens"
	}
	writeJSON(w, http.StatusOK, count)
}

// compact answers with the messages of the user, followed by a compaction item.
func (e *strict) compact(w http.ResponseWriter, r *http.Request) {
	request, ok := e.read(w, r)
	if !ok {
		return
	}
	v := variants[request.Get("model").Str]
	output := []object{}
	for i, item := range request.Get("input").Array() {
		if item.Get("role").Str == "user" {
			part := object{"type": "input_text", "text": textOf(item.Get("content"))}
			output = append(output, object{
				"type": "message", "id": e.issue(v, "msg", i), "status": completes, "role": "user", "content": []object{part},
			})
		}
	}
	output = append(output, object{"type": "compaction", "id": e.issue(v, "cmp", 1), "encrypted_content": "compacted"})
	e.remember(output)
	compacted := object{"output": output}
	if v.thin {
		compacted["output"] = thinList(output)
	} else {
		compacted["id"], compacted["object"] = e.issue(v, "resp", 1), "response.compaction"
		compacted["created_at"], compacted["usage"] = createdAt(), usageOf(request, nil)
	}
	writeJSON(w, http.StatusOK, compacted)
}

// refusal is an error in OpenAI's format.
type refusal struct{ kind, param, code, message string }

func refuse(param, code, format string, args ...any) *refusal {
	return &refusal{kind: "invalid_request_error", param: param, code: code, message: fmt.Sprintf(format, args...)}
}

func writeError(w http.ResponseWriter, status int, r *refusal) {
	writeJSON(w, status, object{"error": object{"message": r.message, "type": r.kind, "param": orNil(r.param), "code": orNil(r.code)}})
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// issue returns a new ID, which begins with prefix and, with ModelRestarted, has the number n.
func (e *strict) issue(v variant, prefix string, n int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !v.restarted {
		e.last++
		n = e.last
	}
	return fmt.Sprintf("%s_engine_%d", prefix, n)
}

// remember keeps the fingerprints of the items of a response.
func (e *strict) remember(items []object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, item := range items {
		raw := encode(item)
		e.issued[gjson.Get(raw, "id").Str] = fingerprint(gjson.Parse(raw))
	}
}

func (e *strict) fingerprint(id string) (fingerprint string, issued bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fingerprint, issued = e.issued[id]
	return fingerprint, issued
}
