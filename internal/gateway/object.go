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

package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// object is a JSON object whose members can be read and set individually. All other members keep their position and every
// byte.
type object struct {
	members []member
}

// member is a member of an object: its name, and its key and value as raw JSON.
type member struct {
	name, key, value string
}

// maxMembers limits the number of members of an object, and maxNameBytes the length of their names, as raw JSON. The bodies and events of the
// API have a few dozen short ones. The limits keep the memory of an object close to the size of its bytes, which it shares: a name with
// escapes is copied.
const (
	maxMembers   = 256
	maxNameBytes = 1024
)

// parseObject parses a JSON object. Errors do not contain any content of the object, because they are logged. The object
// shares the memory of raw, which must not change.
func parseObject(raw []byte) (*object, error) {
	_, o, err := parseBody(raw)
	return o, err
}

// parseBody is like parseObject, and also returns the body in the representation that other packages use.
func parseBody(raw []byte) (jsonvalue.Object, *object, error) {
	if !utf8.Valid(raw) {
		return jsonvalue.Object{}, nil, errors.New("must be UTF-8")
	}
	body, err := jsonvalue.ParseObject(raw)
	if err != nil {
		return jsonvalue.Object{}, nil, err
	}
	if !body.Exists() {
		return body, nil, errors.New("must be an object")
	}
	o, err := objectOf(body.Value().Raw)
	return body, o, err
}

// objectOf returns the object for valid JSON. A repeated name is an error: parsers differ in which value they use, and the
// engine must not interpret a request differently from the gateway.
func objectOf(raw string) (*object, error) {
	o := &object{members: make([]member, 0, 8)} // as most have
	for key, value := range jsonvalue.Elements(raw) {
		if len(key) > maxNameBytes {
			return nil, fmt.Errorf("has a member whose name is longer than %d bytes", maxNameBytes)
		}
		name := jsonvalue.Unquote(key)
		if o.has(name) {
			return nil, errors.New("contains a duplicate key")
		}
		if len(o.members) == maxMembers {
			return nil, fmt.Errorf("has more than %d members", maxMembers)
		}
		o.members = append(o.members, member{name: name, key: key, value: value})
	}
	return o, nil
}

func (o *object) has(name string) bool {
	return slices.ContainsFunc(o.members, func(m member) bool { return m.name == name })
}

// raw returns the raw value of a member, empty if it is absent.
func (o *object) raw(name string) string {
	for _, m := range o.members {
		if m.name == name {
			return m.value
		}
	}
	return ""
}

// get returns the value of a member, null if it is absent.
func (o *object) get(name string) gjson.Result { return gjson.Parse(o.raw(name)) }

// isNull reports whether a member is null or absent.
func (o *object) isNull(name string) bool { return jsonvalue.IsNull(o.raw(name)) }

// set replaces the value of a member, or appends the member. The name must not need escapes.
func (o *object) set(name, value string) {
	for i := range o.members {
		if o.members[i].name == name {
			o.members[i].value = value
			return
		}
	}
	o.members = append(o.members, member{name: name, key: `"` + name + `"`, value: value})
}

// setMissing sets a member that is absent or null.
func (o *object) setMissing(name, value string) {
	if o.isNull(name) {
		o.set(name, value)
	}
}

// remove removes a member if it exists.
func (o *object) remove(name string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
}

// size returns the number of bytes of the object as JSON, or one more.
func (o *object) size() int {
	size := len("{}")
	for _, m := range o.members {
		size += len(m.key) + len(m.value) + len(":,")
	}
	return size
}

// String returns the object as JSON.
func (o *object) String() string {
	var b strings.Builder
	b.Grow(o.size())
	b.WriteByte('{')
	for i, m := range o.members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.key)
		b.WriteByte(':')
		b.WriteString(m.value)
	}
	b.WriteByte('}')
	return b.String()
}

// mapList returns a JSON list whose elements are replaced. size is an estimate of its length in bytes.
func mapList(list string, size int, replace func(i int, element string) string) string {
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('[')
	i := 0
	for _, element := range jsonvalue.Elements(list) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(replace(i, element))
		i++
	}
	b.WriteByte(']')
	return b.String()
}

// quote returns a string as JSON.
func quote(s string) string {
	for i := range len(s) { // nearly always to the end
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return quoteEscaped(s)
		}
	}
	return `"` + s + `"`
}

// quoteEscaped is quote for a string that needs escapes, or may need them.
func quoteEscaped(s string) string {
	quoted, err := jsonvalue.Marshal(s)
	if err != nil {
		return `""` // never: every string can be encoded
	}
	return jsonvalue.Text(quoted)
}

// quoteOrNull returns a string as JSON, null if it is empty.
func quoteOrNull(s string) string {
	if s == "" {
		return "null"
	}
	return quote(s)
}
