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

package kubeclient

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// frameBytes is the largest HTTP/2 frame that is accepted. A history is sent in frames of up to 64 KiB, the size in which the operator
// writes it. In those of 16 KiB, Go's default, one of 256 KiB takes a fifth longer.
const frameBytes = 64 << 10

// NewDirectTransport returns the transport for requests to the operator's Service, with the TLS configuration and the dialer of the caller. It does
// not use proxies, and pings idle connections, so that it notices lost ones.
func NewDirectTransport(config *tls.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext: dial, TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
		// The pings are those of client-go, to notice that a connection is lost.
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReadFrameSize: frameBytes},
		IdleConnTimeout: 90 * time.Second,
	}
}
