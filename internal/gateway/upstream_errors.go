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
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// maxErrorBytes is the maximum size of an engine's error that is understood.
const maxErrorBytes = 64 << 10

// errorIn returns the body of an engine's error, and the error in it, which in some engines is a text or is not an object of its own. Both are
// nil if the body is something else.
func errorIn(body []byte) (o, failure *object) {
	if len(body) > maxErrorBytes {
		return nil, nil
	}
	o, err := parseObject(body)
	if err != nil {
		return nil, nil
	}
	raw := o.raw("error")
	if jsonvalue.IsObject(raw) {
		if failure, err = objectOf(raw); err == nil {
			return o, failure
		}
	}
	if jsonvalue.IsString(raw) {
		failure = &object{}
		failure.set("message", raw)
		return o, failure
	}
	if o.get("message").Type != gjson.String {
		return nil, nil
	}
	failure = &object{}
	for _, name := range errorMembers {
		if o.has(name) {
			failure.set(name, o.raw(name))
		}
	}
	return o, failure
}

// errorMembers are the members of OpenAI's errors.
var errorMembers = []string{"message", "type", "param", "code"}

// completeError adds the members that an error with a status lacks. Some engines have a status as the code.
func completeError(failure *object, status int) {
	if failure.get("message").Type != gjson.String {
		failure.set("message", quote(fmt.Sprintf("The upstream failed with status %d.", status)))
	}
	if failure.get("type").Type != gjson.String {
		kind := typeInvalidRequest
		switch {
		case status >= http.StatusInternalServerError:
			kind = typeServer
		case status == http.StatusTooManyRequests:
			kind = typeRequests
		}
		failure.set("type", quote(kind))
	}
	for _, name := range []string{"param", "code"} {
		switch failure.get(name).Type {
		case gjson.String:
		case gjson.Number:
			failure.set(name, quote(failure.raw(name)))
		default:
			failure.set(name, "null")
		}
	}
}

// withCompleteError returns the body of an engine's error, with the members that typed clients rely on. Another body stays as it is.
func withCompleteError(body []byte, status int) []byte {
	o, failure := errorIn(body)
	if failure == nil {
		return body
	}
	completeError(failure, status)
	o.set("error", failure.String())
	return jsonvalue.Bytes(o.String())
}
