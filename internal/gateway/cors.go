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
	"net/url"
	"strings"

	"github.com/rs/cors"

	"github.com/catena-dev/catena/internal/requestid"
)

// preflightSeconds is how long a browser may keep the answer to a preflight request. Chrome keeps none for longer.
const preflightSeconds = 2 * 60 * 60

// newCORS returns a handler that lets web pages from the given origins call the gateway, or nil without origins. Pages authenticate with an
// API key in a header, never with cookies, so the handler does not allow credentials.
func newCORS(origins []string) *cors.Cors {
	if len(origins) == 0 {
		return nil
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodDelete},
		AllowedHeaders: []string{"*"}, // OpenAI's clients send a number of X-Stainless headers
		ExposedHeaders: append([]string{requestid.Header}, responseHeaders...),
		MaxAge:         preflightSeconds,
	})
}

// answerPreflight adds the headers for web pages to the response, and reports whether the request is a preflight request, which it
// answers: that has no API key.
func (g *Gateway) answerPreflight(w http.ResponseWriter, r *http.Request) bool {
	if g.cors == nil {
		return false
	}
	answered := true
	g.cors.ServeHTTP(w, r, func(http.ResponseWriter, *http.Request) { answered = false })
	return answered
}

// allowsOrigin reports whether a request comes from a web page that Options.CORSAllowedOrigins allows.
func (g *Gateway) allowsOrigin(r *http.Request) bool {
	return g.cors != nil && r.Header.Get("Origin") != "" && g.cors.OriginAllowed(r)
}

// defaultPorts are the ports that browsers omit in an origin.
var defaultPorts = map[string]string{"http": "80", "https": "443"}

// validateOrigin returns an error unless an origin is * or what browsers send as the origin of a page.
func validateOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	parsed, err := url.Parse(origin)
	if err != nil || parsed.Host == "" || strings.Contains(origin, "*") || !strings.EqualFold(origin, parsed.Scheme+"://"+parsed.Host) ||
		parsed.Port() != "" && parsed.Port() == defaultPorts[parsed.Scheme] {
		return fmt.Errorf("invalid origin %q: must be * or as browsers send it, such as https://app.example.com or http://localhost:3000", origin)
	}
	return nil
}
