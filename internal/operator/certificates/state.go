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
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The keys of the Secret, beside those of a Secret of the type kubernetes.io/tls, which have the certificate in use. caKey has
// all trusted CAs, for clients that mount the Secret too.
const (
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
	caKey       = corev1.ServiceAccountRootCAKey
)

// rotatedAtAnnotation is when the certificate in use replaced another one.
const rotatedAtAnnotation = "sessions.catena.dev/certificate-rotated-at"

// state is what the Secret stores.
type state struct {
	// current is in use. next will be, and clients already trust its CA.
	current, next *pair
	// others are CAs of certificates that replicas may still use, because current has replaced them at rotated. When a state was read,
	// they are all trusted CAs.
	others  []*x509.Certificate
	rotated time.Time
}

// readState returns what is valid in a Secret. What is damaged is missing.
func readState(secret *corev1.Secret, now time.Time) state {
	var s state
	s.current, _ = parsePair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	s.next, _ = parsePair(secret.Data[nextCertKey], secret.Data[nextKeyKey])
	s.others = parseCAs(secret.Data[caKey], now)
	s.rotated, _ = time.Parse(time.RFC3339, secret.Annotations[rotatedAtAnnotation])
	return s
}

// write writes the state to a Secret. It returns false if the Secret already has it.
func (s *state) write(secret *corev1.Secret) bool {
	data := map[string][]byte{corev1.TLSCertKey: s.current.cert, corev1.TLSPrivateKeyKey: s.current.key, caKey: s.bundle()}
	if s.next != nil {
		data[nextCertKey], data[nextKeyKey] = s.next.cert, s.next.key
	}
	rotated := s.rotated.UTC().Format(time.RFC3339)
	if maps.EqualFunc(secret.Data, data, bytes.Equal) && secret.Annotations[rotatedAtAnnotation] == rotated {
		return false
	}
	secret.Data = data
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rotatedAtAnnotation, rotated)
	return true
}

// bundle returns all trusted CAs.
func (s *state) bundle() []byte { return encodeCAs(append(s.own(), s.others...)) }

// own returns the CAs of the pairs.
func (s *state) own() []*x509.Certificate {
	cas := []*x509.Certificate{s.current.ca}
	if s.next != nil {
		cas = append(cas, s.next.ca)
	}
	return cas
}

// step returns the state that follows the stored one. known is the state that this process has read before; its certificate
// continues to be used if the stored one is lost. trusted are the CAs that clients trust at present.
func (o *Options) step(stored, known state, trusted []*x509.Certificate, now time.Time) (state, error) {
	s, err := o.renew(stored, known, now)
	if err != nil {
		return state{}, err
	}
	// Clients trust what the Secret has, in its order. Otherwise another Secret was restored, and replicas may use any of them.
	restored := len(trusted) > 0 && !slices.EqualFunc(trusted, stored.others, (*x509.Certificate).Equal)
	if s.rotated.IsZero() || restored {
		s.rotated = now
	}
	s.others = nil
	if now.Before(s.rotated.Add(o.Overlap)) {
		// Replicas use what clients trust. The CAs that were used last come first, so that those that may still be in use remain.
		s.others = without(slices.Concat(trusted, stored.others), s.own())
	}
	return s, nil
}

// renew returns the pairs that follow the stored ones.
func (o *Options) renew(stored, known state, now time.Time) (state, error) {
	s := state{current: o.firstUsable(now, stored.current), next: o.firstUsable(now, stored.next), rotated: stored.rotated}
	switch {
	case s.current == nil:
		return o.replace(s.next, known, now)
	case s.next != nil && !now.Before(o.promotion(s)):
		return state{current: s.next, rotated: now}, nil
	case s.next != nil || now.Before(s.current.due(o.Lifetime)):
		return s, nil
	}
	var err error
	s.next, err = issue(o.host(), now, o.Lifetime)
	return s, err
}

// promotion is when next is to replace current: after the overlap, but in the middle of the time that current has left if that
// is earlier, as it is when the options were others when current was issued.
func (o *Options) promotion(s state) time.Time {
	issued := s.next.issued()
	return issued.Add(min(o.Overlap, s.current.leaf.NotAfter.Sub(issued)/2))
}

// replace returns the pairs after the one in use was lost. If it is known, it is used until its successor is trusted: an administrator who
// deletes a certificate wants another one. Otherwise the successor is used at once.
func (o *Options) replace(next *pair, known state, now time.Time) (state, error) {
	next = o.firstUsable(now, next, known.next)
	if next == nil {
		var err error
		if next, err = issue(o.host(), now, o.Lifetime); err != nil {
			return state{}, err
		}
	}
	if current := o.firstUsable(now, known.current); current != nil {
		return state{current: current, next: next, rotated: now}, nil
	}
	return state{current: next, rotated: now}, nil
}

// firstUsable returns the first pair that is usable, or nil.
func (o *Options) firstUsable(now time.Time, pairs ...*pair) *pair {
	for _, p := range pairs {
		if p != nil && p.usable(o.host(), now) == nil {
			return p
		}
	}
	return nil
}

// without returns the certificates of a list that are not in another one, each once, and at most as many as make maxCAs with those of
// the other one.
func without(cas, others []*x509.Certificate) []*x509.Certificate {
	var kept []*x509.Certificate
	for _, ca := range cas {
		if len(others)+len(kept) < maxCAs && !slices.ContainsFunc(slices.Concat(others, kept), ca.Equal) {
			kept = append(kept, ca)
		}
	}
	return kept
}
