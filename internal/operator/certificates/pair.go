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

package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// backdate is how far a clock may be behind the API server's and accept a new certificate.
const backdate = time.Hour

// maxCAs is the number of CAs that are trusted at once. More are ignored. So fewer than maxCAs/2 certificates may be lost between two
// looks of a replica: each loss can add one that is used at once, and one that is used next.
const maxCAs = 16

// pair is a certificate and its key, both in PEM. The certificate is followed by that of its CA, whose key no one has: each pair
// has a CA of its own.
type pair struct {
	cert, key []byte
	leaf, ca  *x509.Certificate
}

// issue returns a pair for a host, valid for the lifetime from now on.
func issue(host string, now time.Time, lifetime time.Duration) (*pair, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: serial,
		// The names of CAs differ, so that a verifier with several does not try the wrong one.
		Subject:   pkix.Name{CommonName: fmt.Sprintf("%s CA %x", host, serial)},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: new(big.Int).Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: host},
		DNSNames:     []string{host},
		NotBefore:    ca.NotBefore, NotAfter: ca.NotAfter,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return nil, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return parsePair(append(encode(leafDER), encode(caDER)...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// parsePair returns the pair in two PEM values.
func parsePair(cert, key []byte) (*pair, error) {
	loaded, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	if len(loaded.Certificate) < 2 {
		return nil, errors.New("the certificate of the CA is missing")
	}
	ca, err := x509.ParseCertificate(loaded.Certificate[1])
	if err != nil {
		return nil, fmt.Errorf("unable to read the certificate of the CA: %w", err)
	}
	return &pair{cert: cert, key: key, leaf: loaded.Leaf, ca: ca}, nil
}

// usable returns nil if a client that trusts only the pair's CA accepts the pair as the host's at the given time.
func (p *pair) usable(host string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	_, err := p.leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
	return err
}

// issued is when the pair was issued.
func (p *pair) issued() time.Time { return p.leaf.NotBefore.Add(backdate) }

// due is when the pair should be renewed, if certificates should be valid for the lifetime: it was perhaps issued for another one.
func (p *pair) due(lifetime time.Duration) time.Time {
	return p.issued().Add(min(p.leaf.NotAfter.Sub(p.issued()), lifetime) * 2 / 3)
}

func (p *pair) equal(other *pair) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.leaf.Equal(other.leaf)
}

// parseCAs returns the certificates of CAs in a PEM value that are valid at the given time, at most maxCAs.
func parseCAs(value []byte, now time.Time) []*x509.Certificate {
	var cas []*x509.Certificate
	for len(cas) < maxCAs {
		var block *pem.Block
		if block, value = pem.Decode(value); block == nil {
			break
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err == nil && ca.IsCA && now.Before(ca.NotAfter) {
			cas = append(cas, ca)
		}
	}
	return cas
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeCAs(cas []*x509.Certificate) []byte {
	var value []byte
	for _, ca := range cas {
		value = append(value, encode(ca.Raw)...)
	}
	return value
}
