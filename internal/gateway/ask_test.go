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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// TestAsk: the engine counts and compacts whole conversations, and nothing is stored.
func TestAsk(t *testing.T) {
	usage := `{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":0,` +
		`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}`
	for path, tc := range map[string]struct{ answer, added string }{
		inputTokensPath: {`{"input_tokens":7}`, `,"object":"response.input_tokens"}`},
		compactPath: {
			`{"id":"cmp_1","created_at":1,"output":[{"type":"compaction","id":"c","encrypted_content":"x"}]}`,
			`,"object":"response.compaction","usage":` + usage + `}`,
		},
	} {
		t.Run(path, func(t *testing.T) {
			answer, shown := tc.answer, strings.TrimSuffix(tc.answer, "}")+tc.added
			mux := http.NewServeMux()
			mux.Handle("POST /v1/responses", itemEngine())
			mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) == "{}" {
					w.WriteHeader(http.StatusBadRequest)
				}
				_, _ = io.WriteString(w, answer)
			})
			f := start(t, mux)
			first, _ := f.ask(userA)
			second := fmt.Sprintf(`{"model":"m","previous_response_id":%q,"input":[%s,%s]}`, first.get("id"), userB, reference(first.get("output.0.id")))
			saves := len(f.savesByCode())
			for range 2 {
				r := f.do(http.MethodPost, path, second)
				sent, _ := f.sent.last()
				want := `{"model":"m","input":[` + strings.Join([]string{userA, engineItem, userB, engineItem}, ",") + `]}`
				if diff := cmp.Diff(want, sent); diff != "" || r.status != http.StatusOK || r.body != shown {
					t.Errorf("got %d %s, sent to the engine (-want +got):\n%s", r.status, r.body, diff)
				}
			}
			if n := f.sent.count(); n != 4 {
				t.Errorf("%d requests to the engine, want one for the response, one to find out, and two", n)
			}
			if len(f.savesByCode()) != saves {
				t.Error("something was saved")
			}
			if _, err := f.conversations().Create(t.Context(), &store.Conversation{ConversationID: conv, Head: store.Head{ResponseID: first.get("id")}}); err != nil {
				t.Fatal(err)
			}
			f.do(http.MethodPost, path, `{"model":"m","conversation":"conv_1","input":[`+userB+`]}`)
			sent, _ := f.sent.last()
			if want := `{"model":"m","input":[` + strings.Join([]string{userA, engineItem, userB}, ",") + `]}`; sent != want {
				t.Errorf("sent to the engine %s, want the conversation %s", sent, want)
			}
			if r := f.do(http.MethodPost, path, `{"previous_response_id":"resp_none"}`); r.code() != "Bad Request previous_response_not_found" {
				t.Errorf("got %d %s after an unknown response", r.status, r.body)
			}
		})
	}
}

// TestAskEngineWithoutEndpoint: it is a clear error, and whether the engine has the endpoint does not depend on what a client asks.
func TestAskEngineWithoutEndpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		probe, status int
		wantCode      string
		wantSent      int
	}{
		"not found":          {probe: 404, status: 404, wantCode: "Bad Request unsupported_endpoint", wantSent: 1},
		"method not allowed": {probe: 405, status: 405, wantCode: "Bad Request unsupported_endpoint", wantSent: 1},
		"not implemented":    {probe: 501, status: 501, wantCode: "Bad Request unsupported_endpoint", wantSent: 1},
		"unknown model":      {probe: 400, status: 404, wantCode: "Not Found model_not_found", wantSent: 3},
		"broken for now":     {probe: 503, status: 400, wantCode: "Bad Request model_not_found", wantSent: 4},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				status := tc.status
				if body, _ := io.ReadAll(r.Body); string(body) == "{}" {
					status = tc.probe
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error":{"code":"model_not_found"}}`)
			}))
			for range 2 {
				if r := f.do(http.MethodPost, compactPath, `{"model":"none","input":"a"}`); r.code() != tc.wantCode {
					t.Errorf("got %d %s, want %s", r.status, r.body, tc.wantCode)
				}
			}
			if n := int(requests.Load()); n != tc.wantSent {
				t.Errorf("%d requests to the engine, want %d", n, tc.wantSent)
			}
			f.gateway.now = func() time.Time { return time.Now().Add(missingFor) }
			tc.probe, tc.status = http.StatusBadRequest, http.StatusNotFound // it has the endpoint now
			if r := f.do(http.MethodPost, compactPath, `{"model":"none","input":"a"}`); r.code() != "Not Found model_not_found" {
				t.Errorf("later: got %d %s", r.status, r.body)
			}
		})
	}
}

// TestAskProbe: what a client sends with its request does not decide whether the engine has an endpoint.
func TestAskProbe(t *testing.T) {
	unauthorized := true
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.RawQuery != "" || r.Header.Get("Openai-Beta") != "":
			w.WriteHeader(http.StatusNotFound) // as some engines do for a version that they do not know
		case unauthorized:
			w.WriteHeader(http.StatusUnauthorized)
		case !json.Valid(body):
			w.WriteHeader(http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, `{"object":"response.input_tokens","input_tokens":1}`)
		}
	}))
	if r := f.do(http.MethodPost, inputTokensPath+"?api-version=bad", `{"input":"a"}`, "Openai-Beta", "bad"); r.status != http.StatusNotFound {
		t.Errorf("got %d %s for a request that the engine does not know", r.status, r.body)
	}
	unauthorized = false
	if r := f.do(http.MethodPost, inputTokensPath, `{"input":"a"}`); r.get("input_tokens") != "1" {
		t.Errorf("got %d %s after that", r.status, r.body)
	}
}

// TestCompactOfThinEngine: the items of a compacted conversation have what an engine has left out.
func TestCompactOfThinEngine(t *testing.T) {
	f := start(t, jsonHandler(http.StatusOK, `{"output":[{"role":"user","content":"a"},{"type":"compaction","encrypted_content":"x"}]}`))
	r := f.do(http.MethodPost, compactPath, `{"model":"m","input":"a"}`)
	for i, want := range []string{
		`{"role":"user","content":[{"type":"input_text","text":"a"}],"id":"ID","type":"message","status":"completed"}`,
		`{"type":"compaction","encrypted_content":"x","id":"ID"}`,
	} {
		item := r.get(fmt.Sprintf("output.%d", i))
		id := gjson.Get(item, "id").Str
		if diff := cmp.Diff(want, strings.Replace(item, id, "ID", 1)); diff != "" || !unstoredIDs.MatchString(id) {
			t.Errorf("got %s (-want +got):\n%s", item, diff)
		}
	}
}

// TestCompaction: what the engine gets starts with the newest compaction item, or with the input that contains it. Input items stay whole.
func TestCompaction(t *testing.T) {
	const compaction = `{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`
	message := func(text string) string { return `{"role":"user","content":"` + text + `"}` }
	for name, tc := range map[string]struct {
		// turns are the input and the output of stored turns.
		turns [][2]string
		input string
		want  []string
	}{
		"none":              {turns: [][2]string{{message("1"), message("2")}}, input: message("3"), want: []string{message("1"), message("2"), message("3")}},
		"made by an engine": {turns: [][2]string{{message("1"), message("2") + "," + compaction + "," + message("3")}}, input: message("4"), want: []string{compaction, message("3"), message("4")}},
		"newest of several": {
			turns: [][2]string{{message("1"), compaction}, {message("2"), compaction + "," + message("3")}, {message("4"), message("5")}}, input: message("6"),
			want: []string{compaction, message("3"), message("4"), message("5"), message("6")},
		},
		"sent by the client": {
			turns: [][2]string{{message("0"), message("1")}, {message("2") + "," + compaction, message("3")}}, input: message("4"),
			want: []string{message("2"), compaction, message("3"), message("4")},
		},
		"sent by the client now": {
			turns: [][2]string{{message("0"), message("1")}}, input: message("2") + "," + compaction, want: []string{message("2"), compaction},
		},
		"only the word": {
			turns: [][2]string{{message("1"), `{"type":"message","content":[{"type":"compaction"}]}`}}, input: message("3"),
			want: []string{message("1"), `{"type":"message","content":[{"type":"compaction"}]}`, message("3")},
		},
	} {
		for _, instructions := range []string{store.InstructionsOmit, store.InstructionsAll} {
			t.Run(name+"/"+instructions, func(t *testing.T) {
				f := start(t, itemEngine(), func(o *Options) { o.Instructions = instructions })
				previous := ""
				for i, turn := range tc.turns {
					session := testturn.Make(fmt.Sprintf("resp_%d", i), previous)
					session.Request = []byte(`{"instructions":"be brief","input":[` + turn[0] + `]}`)
					session.Response = []byte(`{"output":[` + turn[1] + `]}`)
					if err := f.store.next.InNamespace("default").Save(t.Context(), session, store.SaveOptions{}); err != nil {
						t.Fatal(err)
					}
					previous = session.ResponseID
				}
				r := f.create(fmt.Sprintf(`{"previous_response_id":%q,"input":[%s]}`, previous, tc.input))
				sent, _ := f.sent.last()
				var got []string
				for _, item := range gjson.Get(sent, "input").Array() {
					if item.Get("role").Str != "system" {
						got = append(got, item.Raw)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("sent to the engine (-want +got):\n%s", diff)
				}
				items := f.do(http.MethodGet, "/v1/responses/"+r.get("id")+"/input_items", "")
				if !strings.Contains(items.body, `"msg_0_0"`) {
					t.Errorf("got the input items %s, want all", items.body)
				}
			})
		}
	}
}
