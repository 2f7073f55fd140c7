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

import "net/http"

// maxStreamsPerConnection limits the requests that one connection can have in flight with HTTP/2. More of them need another connection,
// as each request does with HTTP/1.1: limits of connections, such as those of a load balancer, then limit requests too. It is the
// minimum that RFC 9113 recommends.
const maxStreamsPerConnection = 100

// What a connection can make the gateway buffer that is not counted: one frame, and the parts of bodies that no handler has read. With the
// defaults of net/http, that would be 2 MiB. 256 KiB for each round trip let 32 MiB arrive well within the read timeout.
const (
	maxFrameBytes        = 16 << 10
	maxUnreadBytes       = 256 << 10
	maxUnreadStreamBytes = 128 << 10 // so that one request that is not read does not stop those of others
)

// allowHTTP2 lets clients use HTTP/2: with TLS if they negotiate it, and without TLS if they know that the gateway speaks it. HTTP/1.1
// remains available.
func allowHTTP2(server *http.Server) {
	server.Protocols = &http.Protocols{}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreamsPerConnection,
		MaxReadFrameSize:              maxFrameBytes,
		MaxReceiveBufferPerConnection: maxUnreadBytes,
		MaxReceiveBufferPerStream:     maxUnreadStreamBytes,
		// A deadline for a stream does not end a write to the connection, which all streams share.
		WriteByteTimeout: writeTimeout,
	}
}

// limitEnd limits the time in which a client must read the end of a response, when its handler is done and its memory is no longer counted.
// With HTTP/1.1, the end is in a buffer of the kernel. With HTTP/2, it stays in the gateway, with the header of the request, until
// the client permits to send it.
func (g *Gateway) limitEnd(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		_ = http.NewResponseController(w).SetWriteDeadline(g.now().Add(writeTimeout))
	}
}
