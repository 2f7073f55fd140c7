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
	"net"
	"net/http"
	"net/url"
	"strings"
)

// checkOrigin rejects requests that a web page may have sent from the user's browser, if clients need no API key: requests
// from another origin that is not allowed explicitly, and requests to a host that is not a loopback address. The host matters because a web site's name can
// resolve to this machine, which makes its pages same-origin.
func (g *Gateway) checkOrigin(r *http.Request) error {
	if !g.options.loopbackOnly() || (sameOrigin(r) || g.allowsOrigin(r)) && isLoopback(r.Host) {
		return nil
	}
	return &apiError{
		status: http.StatusForbidden, kind: typeInvalidRequest, code: "forbidden_origin",
		message: "Without API keys, only programs on this machine may use the gateway, at a loopback address.",
	}
}

// sameOrigin reports whether a request, of any method, was not sent by a browser for a page of another site. GET requests are
// checked too; http.CrossOriginProtection does not check them.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin":
		return true
	case "":
		origin := r.Header.Get("Origin")
		from, err := url.Parse(origin)
		return origin == "" || err == nil && from.Host == r.Host
	}
	return false
}

// isLoopback reports whether an address, with or without a port, is localhost or a loopback IP address. Other names may
// resolve to anything.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
