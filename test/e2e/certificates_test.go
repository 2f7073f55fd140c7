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

package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestServingCertificates rotates, deletes and damages the certificate that two operators share, and restarts one of them without it. All
// the time, clients that trust what the APIService names get responses from both, and so does the kube-apiserver.
func TestServingCertificates(t *testing.T) {
	p := startPair(t, "--tls-cert-file=", "--tls-private-key-file=", "--serving-secret=catena-system/catena-resolve-tls",
		"--certificate-lifetime=30s", "--certificate-overlap=5s")
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 3)
	api := aggregated(t)

	var requests atomic.Int64
	load := func(ctx context.Context) error {
		for _, o := range p.operators {
			if _, err := servedLeaf(ctx, o); err != nil {
				return err
			}
		}
		response, err := api.do(ctx, itemsPath(namespace, ids[2], ""), "")
		if err == nil && response.code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", response.code, response.body)
		}
		requests.Add(1)
		return err
	}
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		for {
			if err := load(ctx); err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				failed <- err
				return
			}
		}
	}()
	// rotated waits until both operators serve another certificate than before, which the Secret has too.
	rotated := func(before []byte) []byte {
		t.Helper()
		var leaf []byte
		testutil.Eventually(t, func(ctx context.Context) (err error) {
			for _, o := range p.operators {
				if leaf, err = servedLeaf(ctx, o); err != nil {
					return err
				}
				if bytes.Equal(leaf, before) {
					return fmt.Errorf("the operator on port %d serves the same certificate", o.Port)
				}
			}
			stored := servingSecret(ctx, t).Data
			pair, err := tls.X509KeyPair(stored[corev1.TLSCertKey], stored[corev1.TLSPrivateKeyKey])
			if err == nil && !bytes.Equal(pair.Certificate[0], leaf) {
				err = fmt.Errorf("the Secret has another certificate than the operators")
			}
			return err
		})
		return leaf
	}
	leaf := rotated(nil)
	leaf = rotated(leaf)
	if err := env.Client.Delete(t.Context(), servingSecret(t.Context(), t)); err != nil {
		t.Fatal(err)
	}
	leaf = rotated(leaf)
	patchSecret(t, `{"data":{"tls.key":"ZGFtYWdlZA=="}}`)
	leaf = rotated(leaf)
	patchSecret(t, `{"data":{"tls.crt":"","next.crt":"ZGFtYWdlZA==","ca.crt":"ZGFtYWdlZA=="},"metadata":{"annotations":null}}`)
	rotated(leaf)

	stop()
	if err := <-failed; err != nil {
		t.Errorf("a request failed: %v", err)
	}
	t.Logf("%d requests", requests.Load())

	// The CA of another issuer is left alone.
	external := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"sessions.catena.dev/ca-bundle":"external"}},"spec":{"caBundle":"b3RoZXI="}}`))
	if err := env.Client.Patch(t.Context(), newAPIService(), external); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), servingSecret(t.Context(), t)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		return unless(servingSecret(ctx, t).UID != "", "there is no Secret again")
	})
	service := newAPIService()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
		t.Fatal(err)
	}
	if value, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle"); value != "b3RoZXI=" {
		t.Errorf("the caBundle is %q, want that of the other issuer", value)
	}
	if err := env.Client.Patch(t.Context(), service, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))); err != nil {
		t.Fatal(err)
	}
}

// TestServingCertificateIsReplaced starts an operator while the Secret is damaged, nobody knows its certificate any more, and the
// APIService does not exist yet.
func TestServingCertificateIsReplaced(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "catena-system", Name: "catena-resolve-tls"},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("damaged"), "tls.key": nil},
	}
	if err := client.IgnoreAlreadyExists(env.Client.Create(t.Context(), secret)); err != nil {
		t.Fatal(err)
	}
	patchSecret(t, `{"data":{"tls.crt":"ZGFtYWdlZA==","next.crt":null,"next.key":null}}`)
	if err := operator.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restartOperator(t) })
	if err := env.Client.Delete(t.Context(), newAPIService()); err != nil {
		t.Fatal(err)
	}
	operator = startOperator(t, operator.Port, "--tls-cert-file=", "--tls-private-key-file=", "--serving-secret=catena-system/catena-resolve-tls")
	if _, err := servedLeaf(t.Context(), operator); err != nil {
		t.Error(err)
	}
	stored := servingSecret(t.Context(), t).Data
	pair, err := tls.X509KeyPair(stored[corev1.TLSCertKey], stored[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	if lifetime := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore).Hours(); lifetime != 90*24+1 {
		t.Errorf("the certificate is valid for %g hours, want 90 days and the hour before", lifetime)
	}
}

// servedLeaf returns the certificate of an operator, verified as clients in the cluster do.
func servedLeaf(ctx context.Context, o *catenatest.Operator) ([]byte, error) {
	service := newAPIService()
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
		return nil, err
	}
	value, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "catena-resolve.catena-system.svc"}}
	connection, err := dialer.DialContext(ctx, "tcp", subprocess.Loopback(o.Port))
	if err != nil {
		return nil, fmt.Errorf("unable to connect to the operator on port %d: %w", o.Port, err)
	}
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw, nil
}

func newAPIService() *unstructured.Unstructured {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	service.SetName("v1alpha1.resolve.catena.dev")
	return service
}

func servingSecret(ctx context.Context, t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "catena-system", Name: "catena-resolve-tls"}}
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return secret
}

func patchSecret(t *testing.T, patch string) {
	t.Helper()
	if err := env.Client.Patch(t.Context(), servingSecret(t.Context(), t), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}
