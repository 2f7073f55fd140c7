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
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// TestReadList compares with encoding/json, for any values and any split into pieces.
func TestReadList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringOf(rapid.RuneFrom([]rune(`{}[],:"\ é`+"\n"))), rapid.String())
		value := rapid.OneOf(
			rapid.Map(text, func(s string) any { return s }),
			rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
			rapid.SampledFrom([]any{true, nil, map[string]any{}, []any{}, []any{[]any{map[string]any{"a": "]"}}}}),
		)
		object := rapid.MapOf(text, value)
		list := map[string]any{
			"kind": "List", "items": rapid.SliceOf(object).Draw(t, "items"), "metadata": object.Draw(t, "metadata"), "other": value.Draw(t, "other"),
		}
		var raw []byte
		if rapid.Bool().Draw(t, "indent") {
			raw, _ = json.MarshalIndent(list, "", " ")
		} else {
			raw, _ = json.Marshal(list)
		}
		var reader io.Reader = strings.NewReader(string(raw))
		if rapid.Bool().Draw(t, "bytes") {
			reader = iotest.OneByteReader(reader)
		}
		items := []any{}
		metadata, err := ReadList(reader, func(object gjson.Result) {
			items = append(items, gjson.Parse(strings.Clone(object.Raw)).Value())
		})
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		want := gjson.ParseBytes(raw)
		if diff := cmp.Diff(want.Get("items").Value(), any(items)); diff != "" {
			t.Fatalf("items (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.Get("metadata").Value(), metadata.Value()); diff != "" {
			t.Fatalf("metadata (-want +got):\n%s", diff)
		}
		cut := rapid.IntRange(0, len(raw)-1).Draw(t, "cut")
		if _, err := ReadList(strings.NewReader(string(raw[:cut])), func(gjson.Result) {}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%s: got %v, want an unexpected end", raw[:cut], err)
		}
	})
}

// TestReadListErrors: reading anything but a list ends with an error.
func TestReadListErrors(t *testing.T) {
	huge := `{"items":[{"a":"` + strings.Repeat("x", maxObjectBytes) + `"}]}`
	for _, raw := range []string{"", "[]", "404 page not found", `{"items":[{}{}]}`, `{"items":[,]}`, `{"items" []}`, `{,}`, `{"a":}`, huge} {
		if _, err := ReadList(strings.NewReader(raw), func(gjson.Result) {}); err == nil {
			t.Errorf("%.40s: got no error", raw)
		}
	}
}

// TestReadListMemory: at most one object of a list is in memory at a time.
func TestReadListMemory(t *testing.T) {
	const objects, size = 200, 256 << 10
	object := []byte(`{"a":"` + strings.Repeat("x", size) + `"},`)
	pipe, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, `{"items":[`)
		for range objects {
			_, _ = w.Write(object)
		}
		_, err := io.WriteString(w, "{}]}")
		_ = w.CloseWithError(err)
	}()
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before, most, count := heap(), uint64(0), 0
	if _, err := ReadList(pipe, func(gjson.Result) {
		if count++; count%50 == 0 {
			most = max(most, heap())
		}
	}); err != nil || count != objects+1 {
		t.Fatalf("read %d objects, error %v", count, err)
	}
	if most > before+8*size {
		t.Errorf("the memory in use has grown by %d bytes with objects of %d", most-before, size)
	}
}
