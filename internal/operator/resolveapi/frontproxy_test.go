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
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	testingclock "k8s.io/utils/clock/testing"
)

// changingCA is a CA that is replaced.
type changingCA struct {
	dynamiccertificates.CAContentProvider
}

func (c *changingCA) use(t *testing.T, ca *certificateAuthority) {
	t.Helper()
	content, err := dynamiccertificates.NewStaticCAContent("test", ca.pem())
	if err != nil {
		t.Fatal(err)
	}
	c.CAContentProvider = content
}

// proxyConfig is the configuration of a front proxy with the name front-proxy, which sends the user in X-Remote-User.
func proxyConfig(ca dynamiccertificates.CAContentProvider) *authenticatorfactory.RequestHeaderConfig {
	none := headerrequest.StaticStringSlice{}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider: ca, AllowedClientNames: headerrequest.StaticStringSlice{"front-proxy"},
		UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: none, GroupHeaders: none, ExtraHeaderPrefixes: none,
	}
}

// TestCertificatesAreVerifiedAgain: a certificate is trusted for a while without being verified, until it expires at most. Only one that was
// verified is.
func TestCertificatesAreVerifiedAgain(t *testing.T) {
	const ttl = 10 * time.Second
	old, current := newCA(t), newCA(t)
	ca := &changingCA{}
	proxy := newFrontProxy(proxyConfig(ca), ttl)
	clock := testingclock.NewFakeClock(time.Now())
	proxy.verified = cache.NewLRUExpireCacheWithClock(maxVerified, clock)
	check := func(what string, certificate *x509.Certificate, want bool) {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
		req.Header.Set("X-Remote-User", "alice")
		if _, got, _ := proxy.AuthenticateRequest(req); got != want {
			t.Errorf("%s: authenticated: %t, want %t", what, got, want)
		}
	}
	certificate, replacement, other := old.issue(t, "front-proxy"), current.issue(t, "front-proxy"), old.issue(t, "mallory")
	expiring := *old.issue(t, "front-proxy")
	expiring.NotAfter = time.Now().Add(ttl / 2)

	ca.use(t, old)
	check("of the CA", certificate, true)
	check("of the CA, soon to expire", &expiring, true)
	check("of another CA", replacement, false)
	check("of another name", other, false)
	again, err := x509.ParseCertificate(certificate.Raw) // as for another connection
	if err != nil {
		t.Fatal(err)
	}
	ca.use(t, current)
	clock.Step(ttl / 2)
	check("of the former CA, known", again, true)
	check("of the former CA, expired", &expiring, false)
	check("of the new CA", replacement, true)
	clock.Step(ttl)
	check("of the former CA", certificate, false)
	check("of the new CA, again", replacement, true)
}
