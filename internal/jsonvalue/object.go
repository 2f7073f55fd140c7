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

// Object is a valid JSON object, or absent. Parse each body once, with ParseObject, at the boundary where it arrives, and
// pass on the Object: code that receives one need not validate it again.
type Object struct{ value gjson.Result }

// ParseObject parses a JSON object. For empty input and null, it returns an Object that does not exist. It returns an error
// if raw is anything else, or is nested more deeply than MaxDepth. It does not check that strings are valid UTF-8.
//
// The object shares the memory of raw, which must not change while the object or one of its values is in use.
func ParseObject(raw []byte) (Object, error) {
	if len(raw) == 0 {
		return Object{}, nil
	}
	if err := Validate(raw); err != nil {
		return Object{}, err
	}
	value := gjson.Parse(Text(raw))
	switch {
	case value.Type == gjson.Null:
		return Object{}, nil
	case !value.IsObject():
		return Object{}, errors.New("must be an object")
	}
	return Object{value}, nil
}

// ValidObject returns the object for the bytes of a body that was already validated, such as the bodies that store.Store
// passes to a driver. For any other bytes, its members are undefined. The object shares the memory of raw, as in
// ParseObject.
func ValidObject(raw []byte) Object { return Object{gjson.Parse(Text(raw))} }

// Exists reports whether there is a value.
func (o Object) Exists() bool { return o.value.Exists() }

// Value returns the value.
func (o Object) Value() gjson.Result { return o.value }

// Members returns the values of members, null for those that are absent. If a key is given twice, the last one counts, as
// everywhere in Go.
func (o Object) Members(keys ...string) []gjson.Result { return Members(o.value, keys...) }

// RawMembers returns the raw values of members, empty for those that are absent. It is Members without allocations.
func (o Object) RawMembers(keys ...string) []string { return RawMembers(o.value.Raw, keys...) }
