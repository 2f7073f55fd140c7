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
	"crypto/sha256"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/x509"
)

// maxVerified is the number of certificates that are remembered: each kube-apiserver has one.
const maxVerified = 64

// frontProxy authenticates the users of requests that the kube-apiserver forwards. It is safe for concurrent use.
type frontProxy struct {
	// secure verifies the certificate of the client and then asks headers.
	secure, headers authenticator.Request
	names           headerrequest.StringSliceProvider
	// verified has the SHA-256 of each certificate that was verified, which takes 0.15 ms. They are trusted for ttl without being verified.
	verified *cache.LRUExpireCache
	ttl      time.Duration
}

// newFrontProxy returns a frontProxy that trusts a certificate for ttl after it was verified, as k8s.io/apiserver trusts a token.
func newFrontProxy(c *authenticatorfactory.RequestHeaderConfig, ttl time.Duration) *frontProxy {
	headers := headerrequest.NewDynamic(c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes)
	headers = group.NewAuthenticatedGroupAdder(headers)
	return &frontProxy{
		secure:  x509.NewDynamicCAVerifier(c.CAContentProvider.VerifyOptions, headers, c.AllowedClientNames),
		headers: headers, names: c.UsernameHeaders, verified: cache.NewLRUExpireCache(maxVerified), ttl: ttl,
	}
}

// AuthenticateRequest returns the user for whom a request was forwarded, and removes the headers that name it. It is not ok if the
// request has another client, or if the headers are not known yet: then neither are the names that the client may have.
func (p *frontProxy) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 || len(p.names.Value()) == 0 {
		return nil, false, nil
	}
	certificate := req.TLS.PeerCertificates[0]
	hash := sha256.Sum256(certificate.Raw)
	if _, ok := p.verified.Get(hash); ok {
		return p.headers.AuthenticateRequest(req)
	}
	answer, ok, err := p.secure.AuthenticateRequest(req)
	if ok && err == nil {
		p.verified.Add(hash, nil, min(p.ttl, time.Until(certificate.NotAfter)))
	}
	return answer, ok, err
}
