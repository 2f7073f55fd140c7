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
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// object is a JSON object whose members can be read and set one by one. All other members keep their place and every
// byte.
type object struct {
	members []member
}

// member is a member of an object: its name, and its key and value as raw JSON.
type member struct {
	name, key, value string
}

// parseObject parses a JSON object. Errors contain nothing of the object, because they are logged.
func parseObject(raw []byte) (*object, error) {
	_, o, err := parseBody(raw)
	return o, err
}

// parseBody is parseObject, and also returns the body in the form that other packages take.
func parseBody(raw []byte) (jsonvalue.Object, *object, error) {
	if !utf8.Valid(raw) {
		return jsonvalue.Object{}, nil, errors.New("must be UTF-8")
	}
	body, err := jsonvalue.ParseObject(raw)
	if err != nil {
		return jsonvalue.Object{}, nil, err
	}
	o, err := objectOf(body.Value())
	return body, o, err
}

// objectOf returns valid JSON as an object. A repeated name is an error: readers differ in which value they use, and the
// engine must not read another request than the gateway.
func objectOf(value gjson.Result) (*object, error) {
	if !value.IsObject() {
		return nil, errors.New("must be an object")
	}
	o := &object{}
	seen := map[string]bool{}
	var err error
	value.ForEach(func(key, value gjson.Result) bool {
		if seen[key.Str] {
			err = errors.New("has a key twice")
			return false
		}
		seen[key.Str] = true
		o.members = append(o.members, member{name: key.Str, key: key.Raw, value: value.Raw})
		return true
	})
	return o, err
}

// get returns the value of a member, null if it is absent.
func (o *object) get(name string) gjson.Result {
	for _, m := range o.members {
		if m.name == name {
			return gjson.Parse(m.value)
		}
	}
	return gjson.Result{}
}

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
	if o.get(name).Type == gjson.Null {
		o.set(name, value)
	}
}

// remove removes a member, if it is there.
func (o *object) remove(name string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
}

// String returns the object as JSON.
func (o *object) String() string {
	var b strings.Builder
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

// quote returns a string as JSON.
func quote(s string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return `""` // never: every string can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// quoteOrNull returns a string as JSON, null if it is empty.
func quoteOrNull(s string) string {
	if s == "" {
		return "null"
	}
	return quote(s)
}
