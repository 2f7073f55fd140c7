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
	"bytes"
	"context"
	"io"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/metered"
)

// maxRetries is how often a request is repeated by default, and retryInterval is the time before it is repeated because its connection was
// closed. They are those of client-go.
const (
	maxRetries    = 10
	retryInterval = time.Second
)

// Read sends a GET and returns the body of the response. Up to retries times each, it sends the request again if the response has a
// Retry-After header, and if the connection is closed, as a load balancer does when an API server restarts. If the context counts memory
// (see package metered), the body is counted as it is read.
func Read(ctx context.Context, request *rest.Request, retries int) (body []byte, err error) {
	err = readWith(ctx, request, retries, func(response io.Reader) (err error) {
		body, err = metered.ReadAll(response, func(bytes int64) error { return metered.Take(ctx, bytes) })
		return err
	})
	return body, err
}

// ReadInto is Read for a response that replaces what is in a buffer, and does not count memory.
func ReadInto(ctx context.Context, request *rest.Request, into *bytes.Buffer) error {
	return readWith(ctx, request, maxRetries, func(response io.Reader) error {
		into.Reset()
		_, err := into.ReadFrom(response)
		return err
	})
}

// send sends a request of any method, and returns the body of the response without counting memory.
func send(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // Raw would return the error of a response that is not a Status
		return nil, err
	}
	return result.Raw()
}

// readWith calls read with the body of the response, and again with that of each further attempt. Unlike Do, which reads into one buffer that
// it makes twice as large again and again, Stream does not repeat a request whose connection was closed.
func readWith(ctx context.Context, request *rest.Request, retries int, read func(response io.Reader) error) error {
	request.MaxRetries(retries)
	for attempt := 0; ; attempt++ {
		err := readOnce(ctx, request, read)
		closed := utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
		if !closed || attempt == retries {
			return err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return err
		}
	}
}

func readOnce(ctx context.Context, request *rest.Request, read func(response io.Reader) error) error {
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	return read(body)
}
