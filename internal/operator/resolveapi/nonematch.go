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

package resolveapi

import (
	"slices"
	"strings"
)

// maxNoneMatchBytes is the largest If-None-Match that is evaluated: about 160 ETags of this API. A longer one is ignored.
const maxNoneMatchBytes = 8 << 10

// noneMatch is a parsed If-None-Match.
type noneMatch struct {
	// all is set for "*", which matches every answer.
	all  bool
	tags []string // with their quotes
}

// parseNoneMatch parses the If-None-Match fields of a request. If they are malformed, or longer than maxNoneMatchBytes, it returns the zero
// value, with which the answer is sent: a condition only saves its transfer.
func parseNoneMatch(fields []string) noneMatch {
	field := strings.Join(fields, ",") // equivalent, by RFC 9110, section 5.3
	if len(field) > maxNoneMatchBytes {
		return noneMatch{}
	}
	if trim(field) == "*" {
		return noneMatch{all: true}
	}
	var tags []string
	for {
		field = strings.TrimLeft(field, " \t,") // elements of a list may be empty
		if field == "" {
			return noneMatch{tags: tags}
		}
		tag, rest, ok := cutTag(field)
		if rest = trim(rest); !ok || rest != "" && rest[0] != ',' {
			return noneMatch{}
		}
		tags, field = append(tags, tag), rest
	}
}

// cutTag returns the opaque tag at the beginning of a list and what follows it, or false. Weak and strong tags are the same: the comparison is
// weak.
func cutTag(list string) (tag, rest string, ok bool) {
	list = strings.TrimPrefix(list, "W/")
	if !strings.HasPrefix(list, `"`) {
		return "", "", false
	}
	end := strings.IndexFunc(list[1:], func(r rune) bool { return r == '"' || r <= ' ' || r == 0x7f }) + 1
	if end == 0 || list[end] != '"' {
		return "", "", false
	}
	return list[:end+1], list[end+1:], true
}

func trim(s string) string { return strings.Trim(s, " \t") }

// has reports whether a tag is listed.
func (m noneMatch) has(tag string) bool { return slices.Contains(m.tags, tag) }
