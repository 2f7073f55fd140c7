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
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/store"
)

// TestNoTextInLogsOrMetrics: regardless of the failure, neither the log nor the metrics contain any text of a request or
// response, or a key.
func TestNoTextInLogsOrMetrics(t *testing.T) {
	const text, key = "flamingo", "sk-pelican"
	request := `{"input":"` + text + `","stream":%t}`
	refuse := func(context.Context, *store.Session, func() error) error { return errors.New("the store is broken") }
	for name, tc := range map[string]struct {
		upstream http.Handler
		body     string
		onSave   func(context.Context, *store.Session, func() error) error
		failures bool
	}{
		"success":                        {},
		"truncated request":              {body: `{"input":"` + text},
		"parameter of the wrong type":    {body: `{"input":"` + text + `","stream":"` + text + `","previous_response_id":["` + text + `"]}`},
		"engine error":                   {upstream: jsonHandler(500, `{"error":{"message":"`+text+`"}}`)},
		"engine response without JSON":   {upstream: jsonHandler(200, text), failures: true},
		"engine response without output": {upstream: jsonHandler(200, `{"output":"`+text+`"}`), failures: true},
		"save failure":                   {onSave: refuse, failures: true},
		"engine that closes":             {upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), failures: true},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stream=", stream), func(t *testing.T) {
				f := start(t, tc.upstream)
				f.store.onSave = tc.onSave
				body := tc.body
				if body == "" {
					body = fmt.Sprintf(request, stream)
				}
				f.do(strings.ToUpper(text), "/v1/responses", "")
				r := f.do(http.MethodPost, "/v1/responses?key="+text, body, "Authorization", "Bearer "+key)
				f.do(http.MethodGet, "/v1/responses/"+r.get("id")+"?"+text, "", "Authorization", "Bearer "+key)
				families, err := f.registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				written := f.log.String() + fmt.Sprint(families)
				if tc.failures && !strings.Contains(written, "failed") && !strings.Contains(written, "unable to save") {
					t.Errorf("the failure is not logged: %s", written)
				}
				for _, secret := range []string{text, strings.ToUpper(text), key} {
					if strings.Contains(written, secret) {
						t.Errorf("%s is in the log or the metrics: %s", secret, written)
					}
				}
			})
		}
	}
}
