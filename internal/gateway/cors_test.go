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
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// corsHeaders returns the headers of a response that browsers read before a page may.
func (r reply) corsHeaders() map[string]string {
	headers := map[string]string{}
	for name, values := range r.header {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			headers[name] = strings.Join(values, ", ")
		}
	}
	return headers
}

// TestPreflight: browsers ask, without the API key, whether a page may send a request. These are the headers that OpenAI's client adds.
func TestPreflight(t *testing.T) {
	const page = "https://app.example.com"
	const headers = "authorization,content-type,idempotency-key,openai-beta,openai-organization,openai-project,x-stainless-arch,x-stainless-retry-count"
	const vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	allowed := func(origin, method string) map[string]string {
		return map[string]string{
			"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Methods": method, "Access-Control-Allow-Headers": headers,
			"Access-Control-Max-Age": "7200", "Vary": vary,
		}
	}
	for name, tc := range map[string]struct {
		origins              []string
		path, origin, method string
		wantStatus           int
		want                 map[string]string
	}{
		"off":                {nil, "/v1/responses", page, "POST", http.StatusUnauthorized, map[string]string{}},
		"allowed":            {[]string{"http://localhost:3000", page}, "/v1/responses", page, "POST", http.StatusNoContent, allowed(page, "POST")},
		"all":                {[]string{"*"}, "/v1/responses/resp_1", "https://other.example.com", "DELETE", http.StatusNoContent, allowed("*", "DELETE")},
		"unknown URL":        {[]string{page}, "/", page, "GET", http.StatusNoContent, allowed(page, "GET")},
		"another origin":     {[]string{page}, "/v1/responses", "https://app.example.com.evil.example", "POST", http.StatusNoContent, map[string]string{"Vary": vary}},
		"unsupported method": {[]string{page}, "/v1/responses", page, "PUT", http.StatusNoContent, map[string]string{"Vary": vary}},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil, twoTenants(t), func(o *Options) { o.CORSAllowedOrigins = tc.origins })
			r := f.do(http.MethodOptions, tc.path, "", "Origin", tc.origin, "Access-Control-Request-Method", tc.method, "Access-Control-Request-Headers", headers)
			if diff := cmp.Diff(tc.want, r.corsHeaders()); diff != "" || r.status != tc.wantStatus {
				t.Errorf("status %d, want %d, headers (-want +got):\n%s", r.status, tc.wantStatus, diff)
			}
			if f.sent.count() != 0 || r.header.Get("X-Request-Id") == "" {
				t.Errorf("the engine got %d requests, want none; headers %v, want an X-Request-Id", f.sent.count(), r.header)
			}
		})
	}
}

// TestCORS: the responses to pages of allowed origins, and errors too, have the headers that let a page read them.
func TestCORS(t *testing.T) {
	const page, exposed = "https://app.example.com", "X-Request-Id, Retry-After, Retry-After-Ms, X-Should-Retry, Openai-Processing-Ms"
	readable := func(origin string) map[string]string {
		return map[string]string{"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": exposed, "Vary": "Origin"}
	}
	for name, tc := range map[string]struct {
		origins     []string
		origin, key string
		wantStatus  int
		want        map[string]string
	}{
		"off":            {nil, page, "a", http.StatusOK, map[string]string{}},
		"allowed":        {[]string{page}, page, "a", http.StatusOK, readable(page)},
		"error":          {[]string{page}, page, "x", http.StatusUnauthorized, readable(page)},
		"all":            {[]string{"*"}, page, "a", http.StatusOK, readable("*")},
		"another origin": {[]string{page}, "http://app.example.com", "a", http.StatusOK, map[string]string{"Vary": "Origin"}},
		"no page":        {[]string{page}, "", "a", http.StatusOK, map[string]string{"Vary": "Origin"}},
	} {
		for _, body := range []string{`{"input":"a"}`, `{"input":"a","stream":true}`} {
			t.Run(name+" "+body, func(t *testing.T) {
				f := start(t, nil, twoTenants(t), func(o *Options) { o.CORSAllowedOrigins = tc.origins })
				r := f.do(http.MethodPost, "/v1/responses", body, "Authorization", "Bearer "+tc.key, "Origin", tc.origin)
				if diff := cmp.Diff(tc.want, r.corsHeaders()); diff != "" || r.status != tc.wantStatus {
					t.Errorf("status %d, want %d, headers (-want +got):\n%s", r.status, tc.wantStatus, diff)
				}
			})
		}
	}
}
