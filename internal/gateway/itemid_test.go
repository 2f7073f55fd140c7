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
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/store"
)

// TestItemIDs: the name of an item can be read from its ID, whatever the response ID is, and an ID that can be read is of this form.
func TestItemIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		responseID := rapid.OneOf(
			rapid.StringMatching(`resp_[0-9a-f]{32}`), rapid.StringMatching(`(resp_)?~*[a-z_~]{1,8}`), rapid.StringN(1, 40, -1),
		).Draw(t, "responseID")
		name := itemName{responseID, rapid.IntRange(0, maxItemNumber-1).Draw(t, "number")}
		id := name.id(rapid.SampledFrom([]string{"message", "function_call", "unknown", ""}).Draw(t, "type"))
		if got, ok := parseItemID(id); !ok || got != name {
			t.Errorf("%q is the item %+v, %t, want %+v", id, got, ok, name)
		}
	})
}

// TestUnstoredIDs: the ID of an item that is not stored names nothing, and the engine does not get it, not even from a copy of the item.
func TestUnstoredIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := itemName{rapid.StringMatching(`resp_[0-9a-f]{32}`).Draw(t, "responseID"), rapid.IntRange(0, 999_999_999).Draw(t, "number")}
		kind := rapid.SampledFrom([]string{"message", "function_call", "unknown", ""}).Draw(t, "type")
		id := name.unstoredID(kind)
		if got, ok := parseItemID(id); ok || len(id) > 64 {
			t.Errorf("%q is the item %+v, or longer than 64 characters", id, got)
		}
		for _, sent := range []string{id, name.behind(id)} {
			if got := forEngine(`{"id":"` + sent + `","a":1}`); got != `{"a":1}` {
				t.Errorf("the engine gets %s for %s", got, sent)
			}
		}
	})
	for _, id := range []string{"msg_1", "msg_resp_1.0", "a.resp_0123456789abcdef0123456789abcdef.0", "x_msg_resp_0123456789abcdef0123456789abcdef.0"} {
		if item := `{"id":"` + id + `"}`; forEngine(item) != item {
			t.Errorf("the engine gets %s for %s", forEngine(item), item)
		}
	}
}

// forEngine returns an item as the engine gets it.
func forEngine(item string) string {
	var b strings.Builder
	writeForEngine(&b, item)
	return b.String()
}

// TestForEngine: the engine gets its own IDs, and otherwise what the client has sent, byte for byte. Earlier builds have added the second form.
func TestForEngine(t *testing.T) {
	for _, added := range []string{"_-ASNFZ4mrze8BI0VniavN7w_2", "_resp_0123456789abcdef0123456789abcdef_2"} {
		testForEngine(t, added)
	}
}

func testForEngine(t *testing.T, added string) {
	const unstored = "msg_resp_0123456789abcdef0123456789abcdef.2"
	for item, want := range map[string]string{
		`{"call_id":"call_1` + added + `"}`:                               `{"call_id":"call_1"}`,
		`{"id":"fc_1` + added + `","call_id":"c` + added + `", "a" : 1 }`: `{"id":"fc_1","call_id":"c","a":1}`,
		`{"approval_request_id":"m` + added + `"}`:                        `{"approval_request_id":"m"}`,
		"{\"call_id\":\"\u2028\\u00e9\\\\" + added + `"}`:                 "{\"call_id\":\"\u2028\\u00e9\\\\\"}",
		`{"id":"` + unstored + `"}`:                                       `{}`,
		`{"id":"` + unstored + added + `","call_id":"c"}`:                 `{"call_id":"c"}`,
		`{"id":"a` + added + `","id":"b` + added + `"}`:                   `{"id":"a","id":"b"}`,
		`{"name":"f` + added + `", "x":{"id":"a` + added + `"} }`:         `{"name":"f` + added + `", "x":{"id":"a` + added + `"} }`,
		`{"call_id":"call_1\u005f` + added[1:] + `"}`:                     `{"call_id":"call_1\u005f` + added[1:] + `"}`, // no encoder writes this
		`{"id":7,"call_id":["` + added + `"]}`:                            `{"id":7,"call_id":["` + added + `"]}`,
		`["id","a` + added + `"]`:                                         `["id","a` + added + `"]`,
		`"a` + added + `"`:                                                `"a` + added + `"`,
	} {
		if got := forEngine(item); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", item, got, want)
		}
	}
}

// TestForEngineCopiesNothing: the IDs of a client can have as many bytes as its request.
func TestForEngineCopiesNothing(t *testing.T) {
	const size = 1 << 20
	item := `{"type":"function_call_output","call_id":"` + strings.Repeat("\u2028", size/3) + `_resp_0123456789abcdef0123456789abcdef_0"}`
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			var written strings.Builder
			written.Grow(len(item))
			writeForEngine(&written, item)
		}
	})
	if got := result.AllocedBytesPerOp(); got > 5*size/4 {
		t.Errorf("%d bytes are allocated for an item of %d", got, len(item))
	}
}

// TestShown checks that an item is completed, and is not written in another way if nothing is missing.
func TestShown(t *testing.T) {
	const complete = `{ "type":"message", "id":"ID", "status":"completed", "role":"assistant", "content":[ {"type":"output_text","text":"a","annotations":[],"logprobs":[]} ] }`
	for item, want := range map[string]string{
		complete: complete,
		`{ "type":"reasoning", "id":"ID", "summary":[ ] }`: `{ "type":"reasoning", "id":"ID", "summary":[ ] }`,
		`{"type":"from_the_future","id":"ID", "id":"ID"}`:  `{"type":"from_the_future","id":"ID"}`,
		`{"content":"a","role":"assistant"}`:               `{"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"a"}],"role":"assistant","id":"ID","type":"message","status":"completed"}`,
		`{"type":"function_call","id":null}`:               `{"type":"function_call","id":"ID","status":"completed"}`,
		`{"type":"function_call","id":"other"}`:            `{"type":"function_call","id":"ID","status":"completed"}`,
		`{"type":"web_search_call"}`:                       `{"type":"web_search_call","id":"ID","status":"completed"}`,
		`{"type":"reasoning"}`:                             `{"type":"reasoning","id":"ID","summary":[]}`,
		`{"type":"file_search_call"}`:                      `{"type":"file_search_call","id":"ID","status":"completed","queries":[]}`,
	} {
		if got := shown(item, "ID", store.StatusCompleted); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestShownResponse checks what an engine has left out of a response that has not completed.
func TestShownResponse(t *testing.T) {
	turn := &turn{id: "resp_1", request: &createRequest{object: &object{}}}
	turn.request.object.set("safety_identifier", `"s"`)
	for response, want := range map[string]map[string]string{
		`{"status":"incomplete","output":[{"type":"message"}]}`: {
			"output.0.status": "completed", "safety_identifier": "s", "prompt_cache_key": "",
		},
		`{"status":"failed","error":"out of memory"}`: {"error.code": "server_error", "error.message": "out of memory"},
	} {
		o, err := objectOf(response)
		if err != nil {
			t.Fatal(err)
		}
		shown := turn.show(o, turn.itemID).String()
		for path, want := range want {
			if got := gjson.Get(shown, path).String(); got != want {
				t.Errorf("%s of %s is %q, want %q", path, shown, got, want)
			}
		}
	}
}

// TestListedSize: an item gets no longer than counted when it is listed or shown, with parts that lack everything, too.
func TestListedSize(t *testing.T) {
	name := itemName{"resp_0123456789abcdef0123456789abcdef", 7}
	for _, part := range []string{`{"type":"output_text"}`, `{"type":"input_image"}`, `{"type":"o\u0075tput_text"}`, `{}`, `1`} {
		item := `{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(part+",", 1000), ",") + `]}`
		if got, most := len(listed(item, name)), listedSize(item); int64(got) > most {
			t.Errorf("an item of %s has %d bytes when it is listed, and %d were counted", part, got, most)
		}
		turn := &turn{id: name.responseID, request: &createRequest{object: &object{}}}
		response, err := objectOf(`{"output":[` + item + `]}`)
		if err != nil {
			t.Fatal(err)
		}
		most := turn.shownBytes(response)
		if got := len(turn.show(response, turn.itemID).String()); int64(got) > most {
			t.Errorf("a response of %s has %d bytes when it is shown, and %d were counted", part, got, most)
		}
	}
}

// TestCallIDs: the IDs of calls that clients see name the item unless they would be too long for them, and the engine gets its own.
func TestCallIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := itemName{rapid.StringMatching(`resp_[0-9a-f]{32}`).Draw(t, "responseID"), rapid.IntRange(0, 999_999_999).Draw(t, "number")}
		engine := rapid.StringMatching(`[0-9A-Za-z_-]{0,80}`).Draw(t, "engine")
		id := name.callID(engine)
		got, parsed, named := parseSuffix(id)
		switch {
		case named && len(id) <= maxCallID && got == engine && parsed == name:
		case id == engine && len(name.behind(engine)) > maxCallID:
		default:
			t.Errorf("%q of %+v is %q, which is %q of %+v, %t", engine, name, id, got, parsed, named)
		}
	})
	name := itemName{"resp_" + strings.Repeat("f", 32), 99}
	for _, engine := range []string{"call_" + strings.Repeat("x", 24), "call_" + strings.Repeat("x", 32)} { // OpenAI's, vLLM's
		if name.callID(engine) == engine {
			t.Errorf("the ID of the call %q does not name it", engine)
		}
	}
}

// TestSuffix: the name is at the end of an ID, however long that is.
func TestSuffix(t *testing.T) {
	const name, earlier = "_-ASNFZ4mrze8BI0VniavN7w_", "_resp_0123456789abcdef0123456789abcdef_"
	for id, want := range map[string]string{
		"call_1" + earlier + "7":                     "call_1 7",
		earlier + "1" + name + "2":                   earlier + "1 2",
		"a_-ASNFZ4mrze8BI0VniavN7x_1":                "",
		"a_-ASNFZ4mrze8BI0VniavN7_1":                 "",
		"call_1" + name + "0":                        "call_1 0",
		"call_1" + name + "999999999":                "call_1 999999999",
		name + "1":                                   " 1",
		"a" + name + "1" + name + "2":                "a" + name + "1 2",
		strings.Repeat("_resp_", 1<<20) + name + "3": strings.Repeat("_resp_", 1<<20) + " 3",
		"a" + name:                "",
		"a" + name + "1234567890": "",
		"a" + name + "1x":         "",
		"a" + name + "-1":         "",
		"a_resp_0123456789abcdef0123456789abcdeg_1":     "",
		strings.TrimPrefix(name, "_") + "1":             "",
		"a_resp_resp_0123456789abcdef0123456789abcde_1": "",
	} {
		engine, parsed, ok := parseSuffix(id)
		got := ""
		if ok {
			got = fmt.Sprint(engine, " ", parsed.number)
		}
		if got != want || !ok && engine != id {
			t.Errorf("%.100s is %.100q, want %.100q", id, got, want)
		}
	}
}

func FuzzParseItemID(f *testing.F) {
	for _, id := range []string{"msg_0123456789abcdef0123456789abcdef_0", "fc_~a_b_12", "msg_~_1", "_a_1", "msg_a_01", "msg_a_-1", "msg__1", "msg_67ccd2bf17f08190", "x"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		name, ok := parseItemID(id)
		if !ok {
			return
		}
		if again, ok := parseItemID(name.id("message")); !ok || again != name {
			t.Errorf("%q is the item %+v, but its ID %q is %+v", id, name, name.id("message"), again)
		}
		if strings.Count(id, "_") < 2 {
			t.Errorf("%q is read as an ID of the gateway", id)
		}
	})
}
