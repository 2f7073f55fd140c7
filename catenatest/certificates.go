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

package catenatest

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

// frontProxyName is the common name by which an aggregated server recognises the kube-apiserver.
const frontProxyName = "front-proxy-client"

// certificateLifetime is long enough for an environment that runs for months.
const certificateLifetime = 365 * 24 * time.Hour

// certificateFiles are the paths of a certificate, its key, and the certificate of the CA that signed it.
type certificateFiles struct{ ca, cert, key string }

func writeFrontProxyFiles(dir string) (certificateFiles, error) {
	return writeCertificate(dir, "front-proxy", &x509.Certificate{
		Subject:     pkix.Name{CommonName: frontProxyName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// writeServingFiles writes a certificate for an aggregated server that is valid for its Service, localhost and 127.0.0.1.
func writeServingFiles(dir string) (certificateFiles, error) {
	return writeCertificate(dir, "serving", &x509.Certificate{
		Subject:     pkix.Name{CommonName: resolveServiceName},
		DNSNames:    []string{resolveServiceName + "." + systemNamespace + ".svc", "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// writeCertificate creates a CA, signs a certificate made from template, and writes both and the certificate's key.
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
