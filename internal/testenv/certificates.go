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

package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// frontProxyName is the common name by which an aggregated server knows the kube-apiserver.
const frontProxyName = "front-proxy-client"

// certificateLifetime is long enough for a `make run` that nobody stops for months.
const certificateLifetime = 365 * 24 * time.Hour

// ServingFiles are the paths of an aggregated server's certificate, valid for its Service, localhost and 127.0.0.1.
type ServingFiles struct {
	// CertFile and KeyFile are what the server serves with.
	CertFile, KeyFile string
	// CAFile is what its clients trust: the APIService's caBundle.
	CAFile string
}

type certificateFiles struct{ ca, cert, key string }

func writeFrontProxyFiles(dir string) (certificateFiles, error) {
	return writeCertificate(dir, "front-proxy", &x509.Certificate{
		Subject:     pkix.Name{CommonName: frontProxyName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func writeServingFiles(dir string) (ServingFiles, error) {
	files, err := writeCertificate(dir, "serving", &x509.Certificate{
		Subject:     pkix.Name{CommonName: resolveServiceName},
		DNSNames:    []string{resolveServiceName + "." + SystemNamespace + ".svc", "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return ServingFiles{CertFile: files.cert, KeyFile: files.key, CAFile: files.ca}, err
}

// writeCertificate makes a CA and a certificate from template that it signs, and writes both and the certificate's key.
func writeCertificate(dir, name string, template *x509.Certificate) (certificateFiles, error) {
	files := certificateFiles{
		ca:   filepath.Join(dir, name+"-ca.crt"),
		cert: filepath.Join(dir, name+".crt"),
		key:  filepath.Join(dir, name+".key"),
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name + "-ca"}, caKey)
	if err != nil {
		return files, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, err
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore = ca.NotBefore
	template.NotAfter = time.Now().Add(certificateLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return files, err
	}
	return files, files.write(ca.Raw, der, key)
}

func (f certificateFiles) write(ca, cert []byte, key *ecdsa.PrivateKey) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{f.ca: certificatePEM(ca), f.cert: certificatePEM(cert), f.key: keyPEM} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}
