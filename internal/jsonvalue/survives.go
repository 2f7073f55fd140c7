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
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// survivableDepth is the maximum nesting of lists and objects that survives. Kubernetes accepts deeper nesting, but not
// everywhere.
const survivableDepth = 100

// Survives reports whether a custom resource keeps a JSON value. Kubernetes decodes a body into strings, int64, float64, maps
// and lists and encodes it again, which sorts keys and turns 1.0 into 1: that is the same value. It becomes another value if
// a number has more digits than an int64 or a float64 holds, a key is given twice, or a string has half a surrogate pair.
// Numbers of more than 1000 bytes, values that are nested more than 100 levels deep, and invalid JSON do not survive either.
func Survives(raw []byte) bool {
	var s scan
	return s.survives(raw, func(int, []key) bool { return true })
}

// scan is a single pass over a value, which looks for what does not survive. It never returns to the bytes of a value, however
// deeply it is nested, except to those of the keys of an object when the object ends.
type scan struct {
	raw string
	// keys are the keys so far of the objects that have begun and not ended, the outermost first.
	keys []key
	// ended is called with the offset and the sorted keys of each object, and returns false to end the scan.
	ended func(object int, keys []key) bool
}

// survives is Survives, except that ended can end it; it then returns false. A scan can be used again, with the same memory.
func (s *scan) survives(raw []byte, ended func(object int, keys []key) bool) bool {
	if !utf8.Valid(raw) || Validate(raw) != nil {
		return false
	}
	s.raw, s.keys, s.ended = Text(raw), s.keys[:0], ended
	return s.value(skip(s.raw, 0), 0) >= 0
}

// value returns the index after the value that begins at i, or -1 if it does not survive.
func (s *scan) value(i, depth int) int {
	if rest := s.raw[i:]; IsObject(rest) || IsList(rest) {
		return s.elements(i, depth)
	}
	end := endOfValue(s.raw, i)
	if raw := s.raw[i:end]; IsString(raw) && !stringSurvives(raw) || isNumber(raw) && !numberSurvives(raw) {
		return -1
	}
	return end
}

// elements is value for an object or a list.
func (s *scan) elements(begin, depth int) int {
	if depth == survivableDepth {
		return -1
	}
	object, outer := IsObject(s.raw[begin:]), len(s.keys)
	i := skip(s.raw, begin+1)
	for ; s.raw[i] != ']' && s.raw[i] != '}'; i = skip(s.raw, i) {
		if object {
			name := i
			if i = s.value(name, depth+1); i < 0 {
				return -1
			}
			s.keys = append(s.keys, newKey(s.raw[name:i], name))
			i = skip(s.raw, i)
		}
		if i = s.value(i, depth+1); i < 0 {
			return -1
		}
	}
	if object {
		keys := s.keys[outer:]
		s.keys = s.keys[:outer]
		if slices.Sort(keys); !keysDiffer(s.raw, keys) || !s.ended(begin, keys) {
			return -1
		}
	}
	return i + 1
}

// keysDiffer reports whether all of the sorted keys are different.
func keysDiffer(raw string, keys []key) bool {
	for i, k := range keys {
		for _, next := range keys[i+1:] {
			if next.hash() != k.hash() {
				break
			}
			if equalStrings(raw[k.offset():], raw[next.offset():]) {
				return false
			}
		}
	}
	return true
}

// stringSurvives reports whether a JSON string has no escaped half of a surrogate pair, which Go reads as U+FFFD.
func stringSurvives(raw string) bool {
	for {
		i := strings.IndexByte(raw, '\\')
		if i < 0 {
			return true
		}
		if raw[i+1] != 'u' {
			raw = raw[i+2:]
			continue
		}
		unit := codeUnit(raw[i+2:])
		raw = raw[i+6:]
		switch {
		case unit < 0xD800 || unit > 0xDFFF:
		case unit < 0xDC00 && strings.HasPrefix(raw, `\u`) && codeUnit(raw[2:]) >= 0xDC00 && codeUnit(raw[2:]) <= 0xDFFF:
			raw = raw[6:]
		default:
			return false
		}
	}
}

// codeUnit returns the value of an escape's four hexadecimal digits.
func codeUnit(digits string) uint64 {
	unit, err := strconv.ParseUint(digits[:4], 16, 16)
	if err != nil {
		return 0 // unreachable: the JSON is valid
	}
	return unit
}

// safeDigits is the length up to which every whole number is an int64, and every number has the digits of its float64.
const safeDigits = 15

// survivableNumber is the maximum length of a number that survives: copies of it take memory.
const survivableNumber = 1000

func numberSurvives(raw string) bool {
	if len(raw) > survivableNumber {
		return false
	}
	if len(raw) <= safeDigits && !strings.ContainsAny(raw, "eE") {
		return true
	}
	if !strings.ContainsAny(raw, ".eE") {
		if _, err := strconv.ParseInt(raw, 10, 64); err == nil {
			return true
		}
	}
	f, err := strconv.ParseFloat(raw, 64)
	return err == nil && parseDecimal(raw) == parseDecimal(strconv.FormatFloat(f, 'e', -1, 64))
}

// decimal is a number's digits, without leading or trailing zeros, and the exponent of the last digit.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

func parseDecimal(raw string) decimal {
	raw, negative := strings.CutPrefix(raw, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(raw), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}
	}
	e, err := strconv.Atoi(cmp.Or(exponent, "0"))
	if err != nil {
		return decimal{digits: raw} // exponent out of range: not equal to any float
	}
	trimmed := strings.TrimRight(digits, "0")
	return decimal{negative, trimmed, e - len(fraction) + len(digits) - len(trimmed)}
}
