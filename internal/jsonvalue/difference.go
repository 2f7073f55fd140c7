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

package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Decode returns a JSON value with its numbers unchanged, as json.Number.
func Decode(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("unexpected data after the value")
	}
	return value, nil
}

// Difference describes the first difference between two JSON values, or returns the empty string if they are equal. Numbers
// are compared by value and exactly: 1.0 equals 1.
func Difference(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			value, found := got[key]
			if !found {
				return path + "." + key + " is missing"
			}
			if d := Difference(path+"."+key, want[key], value); d != "" {
				return d
			}
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if _, found := want[key]; !found {
				return path + "." + key + " is unexpected"
			}
		}
		return ""
	case []any:
		got, ok := got.([]any)
		if !ok {
			break
		}
		for i := range min(len(want), len(got)) {
			if d := Difference(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); d != "" {
				return d
			}
		}
		if len(want) != len(got) {
			return fmt.Sprintf("%s has %d elements, not %d", path, len(got), len(want))
		}
		return ""
	case json.Number:
		if got, ok := got.(json.Number); ok && sameNumber(want.String(), got.String()) {
			return ""
		}
	default: // string, bool, nil
		if want == got {
			return ""
		}
	}
	return fmt.Sprintf("%s is %s, not %s", path, short(got), short(want))
}

func sameNumber(a, b string) bool { return a == b || parseDecimal(a) == parseDecimal(b) }

func short(value any) string {
	const most = 80
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}
