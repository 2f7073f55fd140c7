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
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testOptions() *Options {
	o := NewOptions()
	o.Secret = "catena-system/catena-resolve-tls"
	return &o
}

func mustIssue(t *testing.T, host string, at time.Time) *pair {
	t.Helper()
	p, err := issue(host, at, testOptions().Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStep(t *testing.T) {
	o := testOptions()
	first, second := mustIssue(t, o.host(), start), mustIssue(t, o.host(), start.Add(60*24*time.Hour))
	other := mustIssue(t, "elsewhere.catena-system.svc", start)
	type result struct{ Current, Next, Previous string }
	names := map[string]string{string(first.leaf.Raw): "first", string(second.leaf.Raw): "second"}
	name := func(p *pair) string {
		if p == nil {
			return ""
		}
		if known := names[string(p.leaf.Raw)]; known != "" {
			return known
		}
		return "new"
	}
	day := 24 * time.Hour
	minute, err := issue(o.host(), start, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	names[string(minute.leaf.Raw)] = "minute"
	long, err := issue(o.host(), start, 400*day)
	if err != nil {
		t.Fatal(err)
	}
	names[string(long.leaf.Raw)] = "long"
	successor := mustIssue(t, o.host(), start.Add(40*time.Second))
	names[string(successor.leaf.Raw)] = "successor"
	tests := map[string]struct {
		stored, known state
		trusted       []*x509.Certificate
		after         time.Duration
		want          result
	}{
		"nothing yet":                   {want: result{Current: "new"}},
		"nothing yet, others trusted":   {trusted: []*x509.Certificate{first.ca}, want: result{Current: "new", Previous: "first"}},
		"nothing to do":                 {stored: state{current: first}, after: 59 * day, want: result{Current: "first"}},
		"due":                           {stored: state{current: first}, after: 60 * day, want: result{Current: "first", Next: "new"}},
		"within the overlap":            {stored: state{current: first, next: second}, after: 60*day + 59*time.Minute, want: result{Current: "first", Next: "second"}},
		"after the overlap":             {stored: state{current: first, next: second}, trusted: []*x509.Certificate{first.ca}, after: 60*day + time.Hour, want: result{Current: "second", Previous: "first"}},
		"others within the overlap":     {stored: state{current: second, others: []*x509.Certificate{first.ca}, rotated: start.Add(60 * day)}, after: 60*day + 59*time.Minute, want: result{Current: "second", Previous: "first"}},
		"others after the overlap":      {stored: state{current: second, others: []*x509.Certificate{first.ca}, rotated: start.Add(60 * day)}, after: 60*day + time.Hour, want: result{Current: "second"}},
		"long-lived":                    {stored: state{current: long}, after: 59 * day, want: result{Current: "long"}},
		"long-lived, due":               {stored: state{current: long}, after: 60 * day, want: result{Current: "long", Next: "new"}},
		"short-lived":                   {stored: state{current: minute, next: successor}, after: 49 * time.Second, want: result{Current: "minute", Next: "successor"}},
		"short-lived, half of the rest": {stored: state{current: minute, next: successor}, after: 50 * time.Second, want: result{Current: "successor"}},
		"expired":                       {stored: state{current: first}, after: 90*day + time.Second, want: result{Current: "new"}},
		"expired, with a successor":     {stored: state{current: first, next: second}, after: 91 * day, want: result{Current: "second"}},
		"expired, and known":            {stored: state{current: first}, known: state{current: first}, after: 91 * day, want: result{Current: "new"}},
		"from the future":               {stored: state{current: second}, after: day, want: result{Current: "new"}},
		"for another host":              {stored: state{current: other}, want: result{Current: "new"}},
		"next for another host":         {stored: state{current: first, next: other}, want: result{Current: "first"}},
		"lost, and known":               {known: state{current: first}, trusted: []*x509.Certificate{first.ca}, want: result{Current: "first", Next: "new"}},
		"lost, and known with the next": {known: state{current: first, next: second}, after: 60 * day, want: result{Current: "first", Next: "second"}},
		"lost, and another known":       {stored: state{next: second}, known: state{current: first}, after: 60 * day, want: result{Current: "first", Next: "second"}},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			got, err := o.step(tc.stored, tc.known, tc.trusted, start.Add(tc.after))
			if err != nil {
				t.Fatal(err)
			}
			previous := ""
			if slices.ContainsFunc(got.others, first.ca.Equal) {
				previous = "first"
			}
			if diff := cmp.Diff(tc.want, result{name(got.current), name(got.next), previous}); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if err := got.current.usable(o.host(), start.Add(tc.after)); err != nil {
				t.Errorf("the certificate in use: %v", err)
			}
		})
	}
}

func TestReadDamagedState(t *testing.T) {
	o := testOptions()
	p := mustIssue(t, o.host(), start)
	damaged := [][]byte{nil, {}, []byte("no PEM"), p.key, p.cert[:len(p.cert)/2], bytes.ReplaceAll(p.cert, []byte("A"), []byte("B")),
		encode(p.leaf.Raw), mustIssue(t, o.host(), start).cert}
	for _, cert := range damaged {
		secret := &corev1.Secret{Data: map[string][]byte{
			"tls.crt": cert, "tls.key": p.key, "next.crt": cert, "next.key": p.key, "ca.crt": cert,
		}}
		secret.Annotations = map[string]string{rotatedAtAnnotation: "yesterday"}
		if s := readState(secret, start); s.current != nil || s.next != nil || !s.rotated.IsZero() {
			t.Errorf("state of %q: %+v, want an empty one", cert, s)
		}
	}
}

func TestWriteState(t *testing.T) {
	o := testOptions()
	s := state{
		current: mustIssue(t, o.host(), start), next: mustIssue(t, o.host(), start), rotated: start,
		others: []*x509.Certificate{mustIssue(t, o.host(), start).ca},
	}
	secret := &corev1.Secret{}
	if !s.write(secret) || s.write(secret) {
		t.Error("want the state to be written once")
	}
	got := readState(secret, start)
	if !got.current.equal(s.current) || !got.next.equal(s.next) || len(got.others) != 3 || !got.rotated.Equal(start) {
		t.Errorf("state: %+v, want %+v", got, s)
	}
	if n := len(parseCAs(secret.Data["ca.crt"], start)); n != 3 {
		t.Errorf("ca.crt has %d CAs, want 3", n)
	}
	s.next, s.others = nil, nil
	if !s.write(secret) {
		t.Error("want the change to be written")
	}
	if diff := cmp.Diff([]byte(nil), secret.Data["next.key"]); diff != "" {
		t.Errorf("data that should be removed (-want +got):\n%s", diff)
	}
}

// TestManyLosses checks that what a replica uses remains trusted while the Secret is lost as often as maxCAs allows, and then replaced by
// one that has as many CAs of other certificates.
func TestManyLosses(t *testing.T) {
	o := testOptions()
	var trusted []*x509.Certificate
	look := func(stored state) state {
		t.Helper()
		s, err := o.step(stored, state{}, trusted, start)
		if err != nil {
			t.Fatal(err)
		}
		trusted = parseCAs(s.bundle(), start)
		return s
	}
	used := look(state{}).current.ca
	for range maxCAs/2 - 1 {
		look(state{})
	}
	backup := state{current: mustIssue(t, o.host(), start)}
	for range maxCAs {
		backup.others = append(backup.others, mustIssue(t, o.host(), start).ca)
	}
	look(backup)
	if !slices.ContainsFunc(trusted, used.Equal) || len(trusted) != maxCAs {
		t.Errorf("%d CAs are trusted, want %d, and among them that of the certificate in use", len(trusted), maxCAs)
	}
}

// TestCAsAreTrusted has replicas that look at the Secret at different times, while it is deleted and damaged, and they are restarted.
// Whatever a replica serves is trusted, and is replaced in time, unless more certificates are lost between two of its looks than maxCAs
// allows.
func TestCAsAreTrusted(t *testing.T) {
	o := testOptions()
	o.Lifetime, o.Overlap = 24*time.Hour, time.Hour
	rapid.Check(t, func(t *rapid.T) {
		now, secret, trusted := start, &corev1.Secret{}, []byte(nil)
		replicas, losses := make([]state, 3), make([]int, 3) // losses since a replica looked
		var backups []*corev1.Secret
		look := func(i int) {
			s, err := o.step(readState(secret, now), replicas[i], parseCAs(trusted, now), now)
			if err != nil {
				t.Fatal(err)
			}
			if s.write(secret) && len(backups) < 100 {
				backups = append(backups, secret.DeepCopy())
			}
			trusted, replicas[i], losses[i] = s.bundle(), s, 0
		}
		lose := func(t *rapid.T) {
			if slices.Max(losses) == maxCAs/2-1 {
				t.Skip("too many losses")
			}
			for i := range losses {
				losses[i]++
			}
		}
		check := func() {
			for i, r := range replicas {
				if r.current == nil {
					continue
				}
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(trusted)
				if _, err := r.current.leaf.Verify(x509.VerifyOptions{DNSName: o.host(), Roots: roots, CurrentTime: now}); err != nil {
					t.Fatalf("the certificate of replica %d at %s: %v", i, now, err)
				}
				if left := r.current.leaf.NotAfter.Sub(now); left < o.Lifetime/3-2*o.Overlap {
					t.Fatalf("the certificate of replica %d expires in %s", i, left)
				}
			}
		}
		look(0)
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"time": func(t *rapid.T) { // each replica looks at least five times in an overlap
				for range rapid.IntRange(1, 8).Draw(t, "rounds") {
					now = now.Add(time.Duration(rapid.Int64Range(0, int64(o.Overlap/5)).Draw(t, "pause")))
					for _, i := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "order") {
						look(i)
						check()
					}
				}
			},
			"look": func(t *rapid.T) { look(rapid.IntRange(0, 2).Draw(t, "replica")) },
			"restart": func(t *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(t, "replica")
				replicas[i], losses[i] = state{}, 0
			},
			"restore": func(t *rapid.T) {
				lose(t)
				secret = backups[rapid.IntRange(0, len(backups)-1).Draw(t, "backup")].DeepCopy()
			},
			"delete": func(t *rapid.T) {
				lose(t)
				secret = &corev1.Secret{Data: map[string][]byte{}}
			},
			"damage": func(t *rapid.T) {
				lose(t)
				key := rapid.SampledFrom([]string{"tls.crt", "tls.key", "next.crt", "next.key", "ca.crt"}).Draw(t, "key")
				secret.Data[key] = []byte("damaged")
			},
			"annotation": func(*rapid.T) { secret.Annotations = nil },
		})
	})
}
