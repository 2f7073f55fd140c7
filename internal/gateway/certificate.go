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
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// certificate is the serving certificate, which can be reloaded.
type certificate struct {
	keyFile string
	value   atomic.Pointer[tls.Certificate]
}

// load starts using a certificate and the key in keyFile. If that is not the key of the certificate, because only one of the files has
// changed yet, it returns an error.
func (c *certificate) load(content []byte) error {
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("unable to read the key: %w", err)
	}
	loaded, err := tls.X509KeyPair(content, key)
	if err != nil {
		return err
	}
	c.value.Store(&loaded)
	return nil
}

// listen returns a listener for connections with TLS, whose clients may choose HTTP/2.
func (c *certificate) listen(plain net.Listener) net.Listener {
	return tls.NewListener(plain, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.value.Load(), nil },
	})
}
