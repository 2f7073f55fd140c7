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
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	certutil "k8s.io/client-go/util/cert"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
)

// TestCertificate serves with TLS, and with another certificate after the files have changed as those of a mounted Secret do. An invalid
// certificate is not used.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "..data")
	change := func(version string, cert, key []byte) {
		t.Helper()
		content := filepath.Join(dir, version)
		if err := os.Mkdir(content, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(content, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(version, mount+"-new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(mount+"-new", mount); err != nil {
			t.Fatal(err)
		}
	}
	first, firstKey := serverCertificate(t)
	second, secondKey := serverCertificate(t)
	change("1", first, firstKey)
	f := newFixture(t, enginetest.Handler(), func(o *Options) {
		o.TLSCertFile, o.TLSKeyFile = filepath.Join(mount, "tls.crt"), filepath.Join(mount, "tls.key")
		o.ReloadInterval = time.Hour // the test reloads
	})
	serveFixture(t, f)
	url := strings.Replace(f.url, "http:", "https:", 1) + "/v1/models"
	if err := getWith(t.Context(), url, first); err != nil {
		t.Error(err)
	}
	change("2", second, firstKey)
	f.gateway.reloadFiles()
	change("3", []byte("damaged"), secondKey)
	f.gateway.reloadFiles()
	if got := testutil.ToFloat64(f.gateway.metrics.reloadFailures.WithLabelValues("tls-cert")); got != 2 {
		t.Errorf("%v failures were counted, want 2", got)
	}
	if err := getWith(t.Context(), url, first); err != nil {
		t.Error(err)
	}
	change("4", second, secondKey)
	f.gateway.reloadFiles()
	if err := getWith(t.Context(), url, second); err != nil {
		t.Error(err)
	}
	if err := getWith(t.Context(), url, first); err == nil {
		t.Error("the first certificate is still served")
	}
}

func serverCertificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// getWith sends a request over a new connection to a server that has a certificate.
func getWith(ctx context.Context, url string, cert []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
