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
	"errors"

	"github.com/tidwall/gjson"
)

// Object is a valid JSON object, or no value. ParseObject is the only way to get one with a value, so that code that is
// given an Object need not validate it again.
type Object struct{ value gjson.Result }

// ParseObject parses a JSON object. Nothing and null are no value. It returns an error if raw is anything else, or is
// nested more deeply than MaxDepth. It does not check that strings are valid UTF-8.
func ParseObject(raw []byte) (Object, error) {
	if len(raw) == 0 {
		return Object{}, nil
	}
	if err := Validate(raw); err != nil {
		return Object{}, err
	}
	value := gjson.ParseBytes(raw)
	switch {
	case value.Type == gjson.Null:
		return Object{}, nil
	case !value.IsObject():
		return Object{}, errors.New("must be an object")
	}
	return Object{value}, nil
}

// Exists reports whether there is a value.
func (o Object) Exists() bool { return o.value.Exists() }

// Value returns the value.
func (o Object) Value() gjson.Result { return o.value }

// Members returns the values of members, null for those that are absent. If a key is given twice, the last one counts, as
// everywhere in Go.
func (o Object) Members(keys ...string) []gjson.Result { return Members(o.value, keys...) }
