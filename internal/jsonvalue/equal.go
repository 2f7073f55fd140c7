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
	"cmp"
	"slices"

	"github.com/tidwall/gjson"
)

// Equal reports whether two bodies, each JSON or empty, have the same bytes or the same value. If one of them would not
// survive in a custom resource, only the bytes are compared. It does not decode the bodies, and uses less memory than they
// do.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return Survives(a) && Survives(b) && equal(trimmed(a), trimmed(b))
}

// trimmed returns a body without leading white space.
func trimmed(raw []byte) string { return Text(raw)[skip(Text(raw), 0):] }

// equal compares two values that survive and have no leading white space.
func equal(a, b string) bool {
	switch {
	case IsObject(a) && IsObject(b):
		return equalObjects(a, b)
	case IsList(a) && IsList(b):
		return equalLists(a, b)
	case IsString(a) && IsString(b):
		return a == b || gjson.Parse(a).Str == gjson.Parse(b).Str
	case isNumber(a) && isNumber(b):
		return sameNumber(literal(a), literal(b))
	}
	return literal(a) == literal(b)
}

func isNumber(raw string) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// literal returns a number, boolean or null without trailing white space.
func literal(raw string) string { return raw[:endOfValue(raw, 0)] }

func equalObjects(a, b string) bool {
	x, y := sortedKeys(a), sortedKeys(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if nameAt(a, x[i]) != nameAt(b, y[i]) || !equal(valueAt(a, x[i]), valueAt(b, y[i])) {
			return false
		}
	}
	return true
}

func equalLists(a, b string) bool {
	for i, j := 1, 1; ; {
		i, j = skip(a, i), skip(b, j)
		endA, endB := endOfValue(a, i), endOfValue(b, j)
		if i == endA || j == endB {
			return i == endA && j == endB
		}
		if !equal(a[i:endA], b[j:endB]) {
			return false
		}
		i, j = endA, endB
	}
}

// sortedKeys returns the offsets of an object's keys, ordered by their names.
func sortedKeys(object string) []int32 {
	keys := make([]int32, 0, Count(object))
	for s := range spans(object) {
		keys = append(keys, int32(s.key))
	}
	slices.SortFunc(keys, func(a, b int32) int { return cmp.Compare(nameAt(object, a), nameAt(object, b)) })
	return keys
}

// nameAt returns the name of the key that begins at an index of an object, and valueAt its value.
func nameAt(object string, key int32) string {
	return Unquote(object[key:endOfValue(object, int(key))])
}

func valueAt(object string, key int32) string {
	value := skip(object, endOfValue(object, int(key)))
	return object[value:endOfValue(object, value)]
}
