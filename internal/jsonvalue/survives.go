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
// Invalid JSON does not survive.
func Survives(raw []byte) bool {
	return utf8.Valid(raw) && Validate(raw) == nil && survives(trimmed(raw), 0)
}

// survives reports whether a valid value without leading white space survives.
func survives(raw string, depth int) bool {
	switch {
	case IsString(raw):
		return stringSurvives(raw)
	case IsObject(raw) || IsList(raw):
		if depth == survivableDepth {
			return false
		}
		for key, value := range Elements(raw) {
			if !stringSurvives(key) || !survives(value, depth+1) {
				return false
			}
		}
		return !IsObject(raw) || keysDiffer(raw)
	case raw != "" && isNumber(raw):
		return numberSurvives(literal(raw))
	}
	return true
}

// keysDiffer reports whether all keys of an object are different. Most objects have few keys.
func keysDiffer(object string) bool {
	const most = 16
	var few [most]string
	n := 0
	for key := range Elements(object) {
		if n == most {
			keys := sortedKeys(object)
			for i := range keys[1:] {
				if nameAt(object, keys[i]) == nameAt(object, keys[i+1]) {
					return false
				}
			}
			return true
		}
		few[n] = Unquote(key)
		if slices.Contains(few[:n], few[n]) {
			return false
		}
		n++
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

func numberSurvives(raw string) bool {
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
