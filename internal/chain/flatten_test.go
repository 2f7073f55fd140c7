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

package chain

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// The names of the cases begin with the statement about GodeX's flattening that they test: G13 to G16.
func TestFlatten(t *testing.T) {
	const hello = `{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}`
	tests := map[string]struct {
		request, response string
		wantInstructions  string
		want              []string
		wantErr           string
	}{
		"G13 order": {
			request:          `{"instructions":"be brief","input":"hello"}`,
			response:         `{"output":[{"type":"message"}]}`,
			wantInstructions: `{"type":"message","role":"system","content":[{"type":"input_text","text":"be brief"}]}`,
			want:             []string{hello, `{"type":"message"}`},
		},
		"G14 empty instructions":      {request: `{"instructions":"","input":"hello"}`, want: []string{hello}},
		"G14 null instructions":       {request: `{"instructions":null,"input":"hello"}`, want: []string{hello}},
		"G15 list, no IDs added":      {request: `{"input":[{"role":"user","content":"a"},{"n":1.0,"b":[1,2]}]}`, want: []string{`{"role":"user","content":"a"}`, `{"n":1.0,"b":[1,2]}`}},
		"G15 escapes unchanged":       {request: `{"input":"a\u003cb\n\"é"}`, want: []string{`{"type":"message","role":"user","content":[{"type":"input_text","text":"a\u003cb\n\"é"}]}`}},
		"G15 empty list":              {request: `{"input":[]}`},
		"G15 empty string":            {request: `{"input":""}`},
		"G15 null":                    {request: `{"input":null}`},
		"G15 absent":                  {request: `{}`},
		"G16 unknown types":           {response: `{"output":[{"type":"reasoning","encrypted_content":"x"},{"type":"from the future"},{}]}`, want: []string{`{"type":"reasoning","encrypted_content":"x"}`, `{"type":"from the future"}`, `{}`}},
		"no snapshots":                {},
		"null snapshots":              {request: "null", response: "null"},
		"null output":                 {response: `{"output":null}`},
		"case-sensitive keys":         {request: `{"INPUT":[1],"Instructions":5}`, response: `{"Output":"x"}`},
		"large numbers unchanged":     {response: `{"output":[{"n":12345678901234567890}]}`, want: []string{`{"n":12345678901234567890}`}},
		"request is a list":           {request: `[]`, wantErr: "unable to read the request"},
		"response is a string":        {response: `"x"`, wantErr: "unable to read the response"},
		"request is truncated":        {request: `{"input":`, wantErr: "unable to read the request"},
		"input is a number":           {request: `{"input":5}`, wantErr: "must be a string or a list of objects"},
		"input is an object":          {request: `{"input":{}}`, wantErr: "must be a string or a list of objects"},
		"input has a string":          {request: `{"input":[{},"x"]}`, wantErr: "item 1 must be an object"},
		"input has a null":            {request: `{"input":[null]}`, wantErr: "item 0 must be an object"},
		"instructions are a list":     {request: `{"instructions":[]}`, wantErr: "unable to read `instructions`"},
		"output is a string":          {response: `{"output":"x"}`, wantErr: "unable to read `output`"},
		"output has a list":           {response: `{"output":[[]]}`, wantErr: "item 0 must be an object"},
		"errors do not quote content": {request: `{"input":["secret"]}`, wantErr: "item 0 must be an object"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			items, err := Flatten([]byte(tc.request), []byte(tc.response))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("error is %v, want an error that contains %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantInstructions, string(items.Instructions)); diff != "" {
				t.Errorf("instructions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, list(items)); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
}

func list(items *Items) []string {
	var list []string
	for i := range items.Len() {
		list = append(list, string(items.Slice(i, i+1)))
	}
	return list
}

func TestItemsSlice(t *testing.T) {
	items, err := Flatten([]byte(`{"input":[{"a":1},{"b":2}]}`), []byte(`{"output":[{"c":3}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		from, to int
		want     string
	}{
		"all":      {0, 3, `{"a":1},{"b":2},{"c":3}`},
		"first":    {0, 1, `{"a":1}`},
		"last two": {1, 3, `{"b":2},{"c":3}`},
		"none":     {2, 2, ``},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(items.Slice(tc.from, tc.to)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// FuzzFlatten compares Flatten with a plain decoding of the bodies.
func FuzzFlatten(f *testing.F) {
	f.Add(`{"instructions":"be brief","input":"hello"}`, `{"output":[{"type":"message"}]}`)
	f.Add(`{"input":[{"role":"user"},{"a":[{}]}]}`, `{"output":[]}`)
	f.Add(`{"input":null,"Input":"x"}`, `null`)
	f.Add(`[`, `{"output":[{"n":1e999}]}`)
	f.Fuzz(func(t *testing.T, request, response string) {
		items, err := Flatten([]byte(request), []byte(response))
		if err != nil {
			return
		}
		var joined []json.RawMessage
		if err := json.Unmarshal([]byte("["+string(items.List)+"]"), &joined); err != nil {
			t.Fatalf("items are not JSON: %v", err)
		}
		if len(joined) != items.Len() {
			t.Fatalf("%d items, but %d ends", len(joined), items.Len())
		}
		for i, item := range joined {
			if got := string(items.Slice(i, i+1)); strings.TrimSpace(got) != string(item) {
				t.Fatalf("item %d is %q, want %q", i, got, item)
			}
			if item[0] != '{' {
				t.Fatalf("item %d is not an object: %q", i, item)
			}
		}
		if items.Instructions != nil && !json.Valid(items.Instructions) {
			t.Fatalf("instructions are not JSON: %q", items.Instructions)
		}
		want := slices.Concat(plainItems(t, request, "input"), plainItems(t, response, "output"))
		var got []any
		decodePlain(t, "["+string(items.List)+"]", &got)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("items (-want +got):\n%s", diff)
		}
	})
}

// plainItems returns the items of a body under a key, by decoding all of the body into plain values.
func plainItems(t *testing.T, snapshot, key string) []any {
	if snapshot == "" {
		return nil
	}
	var object map[string]any
	decodePlain(t, snapshot, &object)
	switch value := object[key].(type) {
	case nil:
		return nil
	case []any:
		return value
	case string:
		if value == "" {
			return nil
		}
		return []any{map[string]any{
			"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_text", "text": value}},
		}}
	default:
		t.Fatalf("accepted %s of type %T", key, value)
		return nil
	}
}

func decodePlain(t *testing.T, text string, into any) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("accepted %q: %v", text, err)
	}
}

// TestFlattenLarge: large items are copied in pieces, and nothing of them is lost. The list takes little more memory than it needs.
func TestFlattenLarge(t *testing.T) {
	noise := make([]byte, 2*maxCopy)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	text := base64.StdEncoding.EncodeToString(noise)
	item := `{"text":"` + text + `"}`
	for name, tc := range map[string]struct{ request, response, want string }{
		"item":   {`{"input":[` + item + `]}`, `{"output":[` + item + `]}`, item + "," + item},
		"string": {`{"input":"` + text + `"}`, ``, strings.Join(message("user", `"`+text+`"`), "")},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := Flatten([]byte(tc.request), []byte(tc.response))
			if err != nil {
				t.Fatal(err)
			}
			if string(items.List) != tc.want {
				t.Error("the list differs")
			}
			if unused := cap(items.List) - len(items.List); unused > len(items.List)/8 {
				t.Errorf("%d of %d bytes are not used", unused, cap(items.List))
			}
		})
	}
	if got := compact(make([]int, 1, 100)); cap(got) > 8 {
		t.Errorf("one number takes the memory of %d", cap(got))
	}
}

// TestMaxItems: a turn has at most MaxItems items, however many bytes it has.
func TestMaxItems(t *testing.T) {
	list := func(items int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", items), ",") + "]" }
	const half = MaxItems / 2
	for name, tc := range map[string]struct {
		input, output int
		want          error
	}{
		"as many":      {half, half, nil},
		"one more":     {half, half + 1, ErrTooManyItems},
		"in the input": {MaxItems + 1, 0, ErrTooManyItems},
	} {
		t.Run(name, func(t *testing.T) {
			request, response := []byte(`{"input":`+list(tc.input)+`}`), []byte(`{"output":`+list(tc.output)+`}`)
			items, err := Flatten(request, response)
			if !errors.Is(err, tc.want) || err == nil && items.Len() != tc.input+tc.output {
				t.Errorf("Flatten returns %v, want %v", err, tc.want)
			}
			if err := Check(request, response, math.MaxInt); !errors.Is(err, tc.want) {
				t.Errorf("Check returns %v, want %v", err, tc.want)
			}
			if err := CheckObjects(jsonvalue.ValidObject(request), jsonvalue.ValidObject(response)); !errors.Is(err, tc.want) {
				t.Errorf("CheckObjects returns %v, want %v", err, tc.want)
			}
		})
	}
}
