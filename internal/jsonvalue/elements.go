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
	"iter"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// Elements yields the members of a JSON object, each as its raw key and its raw value, or the elements of a list, with
// empty keys. For any other value it yields nothing. It allocates no memory, even for a body with many tiny members. The
// result is undefined if raw is not valid JSON.
func Elements(raw string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		i := skip(raw, 0)
		if !IsObject(raw[i:]) && !IsList(raw[i:]) {
			return
		}
		object := raw[i] == '{'
		for i++; ; {
			i = skip(raw, i)
			key, value := i, i
			if object {
				i = endOfValue(raw, key)
				value = skip(raw, i)
			}
			end := endOfValue(raw, value)
			if end == value || !yield(raw[key:i], raw[value:end]) { // the closing bracket, or the end
				return
			}
			i = end
		}
	}
}

// IsObject reports whether a raw JSON value without leading white space is an object.
func IsObject(raw string) bool { return strings.HasPrefix(raw, "{") }

// IsList reports whether a raw JSON value without leading white space is a list.
func IsList(raw string) bool { return strings.HasPrefix(raw, "[") }

// IsString reports whether a raw JSON value without leading white space is a string.
func IsString(raw string) bool { return strings.HasPrefix(raw, `"`) }

// IsNull reports whether a raw JSON value without leading white space is null or absent.
func IsNull(raw string) bool { return raw == "" || raw[0] == 'n' }

// Count returns the number of elements of a list, or of members of an object. See Elements.
func Count(raw string) int {
	n := 0
	for range Elements(raw) {
		n++
	}
	return n
}

// Nodes returns about the number of values in a raw JSON value, at any depth: each key and the opening of each list and object
// count too, but not the last value in each. It neither recurses nor allocates memory.
func Nodes(raw string) int {
	n := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := endOfString(raw, i)
			if end < 0 {
				return n
			}
			i = end - 1
		case '{', '[', ',', ':':
			n++
		}
	}
	return n
}

// Unquote returns the string of a raw JSON string. It allocates only if the string has escapes.
func Unquote(raw string) string {
	if strings.IndexByte(raw, '\\') >= 0 {
		return gjson.Parse(raw).Str
	}
	return strings.Trim(raw, `"`)
}

// UnquoteFirst is Unquote for at most the given number of bytes of a raw JSON string, without an escape that they would cut. It returns the empty
// string for any other value.
func UnquoteFirst(raw string, bytes int) string {
	if !IsString(raw) {
		return ""
	}
	if len(raw) <= bytes {
		return Unquote(raw)
	}
	end := 1
	for end < bytes {
		length := 1
		if raw[end] == '\\' {
			length = 2
			if raw[end+1] == 'u' {
				length = len(`\u0000`)
			}
		}
		if end+length > bytes {
			break
		}
		end += length
	}
	return Unquote(raw[:end] + `"`)
}

// skip returns the index of the next value, or of the bracket that closes the list or object, at i or after it.
func skip(raw string, i int) int {
	for i < len(raw) && strings.IndexByte(" \t\r\n,:", raw[i]) >= 0 {
		i++
	}
	return i
}

// endOfValue returns the index after the value that begins at i, or i if no value begins there.
func endOfValue(raw string, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			end := endOfString(raw, i)
			if end < 0 {
				return len(raw)
			}
			if depth == 0 {
				return end
			}
			i = end - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ' ', '\t', '\r', '\n', ',', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// endOfString returns the index after the string whose opening quote is at i, or -1 if it does not end.
func endOfString(raw string, i int) int {
	for from := i + 1; ; {
		quote := strings.IndexByte(raw[from:], '"')
		if quote < 0 {
			return -1
		}
		quote += from
		escapes := 0
		for quote-escapes > from && raw[quote-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return quote + 1
		}
		from = quote + 1
	}
}

// Text returns a string that shares the memory of the given bytes. The bytes must not change while the string is in use.
func Text(raw []byte) string { return unsafe.String(unsafe.SliceData(raw), len(raw)) }

// Bytes returns a string as bytes that share its memory. The bytes must not change while the string is in use, nor at all if
// the string was not made from bytes.
func Bytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
