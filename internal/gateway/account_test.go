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
	"path/filepath"
	"strings"
	"testing"
)

// TestAccount checks that clients get the engine's authentication errors and rate limit headers if the account at the engine
// is theirs, and neither if it is the gateway's.
func TestAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	accounts := map[string]struct {
		owned   bool
		content string // of the file
		change  func(*Options)
	}{
		"account of the client":  {change: func(*Options) {}},
		"account of the gateway": {owned: true, content: "sk-gateway", change: func(o *Options) { o.UpstreamAPIKeyFile = file }},
		"engine without keys":    {owned: true, content: "[{namespace: default, key: sk-client}]", change: func(o *Options) { o.TenantsFile = file }},
	}
	for name, account := range accounts {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests} {
			t.Run(name+" "+http.StatusText(status), func(t *testing.T) {
				write(t, file, account.content)
				f := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Ratelimit-Remaining-Requests", "7")
					w.WriteHeader(status)
					_, _ = w.Write([]byte(`{"error":{"message":"Incorrect API key provided: sk-gateway"}}`))
				}), account.change)
				r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`, "Authorization", "Bearer sk-client")
				models := f.do(http.MethodGet, "/v1/models", "", "Authorization", "Bearer sk-client")
				want, wantLimit := http.StatusText(status), "7"
				if account.owned {
					wantLimit = ""
				}
				if account.owned && status != http.StatusTooManyRequests {
					want = "Bad Gateway upstream_refused"
				}
				for _, r := range []reply{r, models} {
					if r.code() != want || r.header.Get("X-Ratelimit-Remaining-Requests") != wantLimit {
						t.Errorf("got %d %s %v, want %s and the limit %q", r.status, r.body, r.header, want, wantLimit)
					}
					refused := r.get("error.code") == "upstream_refused"
					if refused && (strings.Contains(r.body, "sk-") || r.header.Get("X-Should-Retry") != "false") {
						t.Errorf("got %s %v, want neither the engine's message nor a retry", r.body, r.header)
					}
				}
			})
		}
	}
}
