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

// Package jsonvalue validates JSON bodies, determines which values a custom resource keeps, and compares values.
package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
)

// MaxDepth (1000) is the maximum nesting of lists and objects. Deeper values are invalid: gjson recurses without limit, until
// the stack overflows and the process ends.
const MaxDepth = 1000

// Marshal encodes a value as json.Marshal does, except that it does not escape <, > and &, neither in strings nor in raw values.
func Marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Validate returns an error if raw is not JSON or is nested more deeply than MaxDepth.
func Validate(raw []byte) error {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := endOfString(Text(raw), i)
			if end < 0 {
				return errors.New("must be JSON")
			}
			i = end - 1
		case '[', '{':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("must not be nested more than %d levels deep", MaxDepth)
			}
		case ']', '}':
			depth--
		}
	}
	if !gjson.ValidBytes(raw) {
		return errors.New("must be JSON")
	}
	return nil
}

// Members returns the values of an object's members, null for those that are absent. If a key is given twice, the last one
// counts, as everywhere in Go. The result is undefined if the object is not valid JSON.
func Members(object gjson.Result, keys ...string) []gjson.Result {
	values := make([]gjson.Result, len(keys))
	for i, raw := range RawMembers(object.Raw, keys...) {
		values[i] = gjson.Parse(raw)
	}
	return values
}

// RawMembers is Members for raw JSON, and allocates only the result: an absent member is the empty string.
func RawMembers(object string, keys ...string) []string {
	values := make([]string, len(keys))
	for key, value := range Elements(object) {
		if i := slices.Index(keys, Unquote(key)); i >= 0 {
			values[i] = value
		}
	}
	return values
}
