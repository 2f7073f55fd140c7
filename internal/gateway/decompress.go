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
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// zstdWindow is the maximum window of a body in zstd. RFC 9659 forbids clients larger ones.
const zstdWindow = 8 << 20

// decoder decodes a Content-Encoding.
type decoder struct {
	name string
	// memory is what an open decoder takes, in bytes.
	memory int64
	open   func(io.Reader) (io.ReadCloser, error)
}

var (
	gzipDecoder = &decoder{name: "gzip", memory: 64 << 10, open: func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }}
	zstdDecoder = &decoder{name: "zstd", memory: zstdWindow + 1<<20, open: func(r io.Reader) (io.ReadCloser, error) {
		// With a concurrency of 1, it starts no goroutines and does not read ahead.
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}}
)

// decoderOf returns the decoder for the body of a request, or nil if the body is not encoded.
func decoderOf(r *http.Request) (*decoder, error) {
	encoding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
	switch strings.ToLower(encoding) {
	case "", "identity":
		return nil, nil
	case "gzip", "x-gzip": // the same, according to RFC 9110
		return gzipDecoder, nil
	case "zstd":
		return zstdDecoder, nil
	}
	e := invalidRequest("", "unsupported_content_encoding", "Unsupported Content-Encoding: '%s'. Use gzip, zstd or none.", encoding)
	e.status = http.StatusUnsupportedMediaType
	return nil, e
}

// decompress returns a body, of at most Options.MaxRequestBytes, that a client has sent compressed. It takes over the memory that is
// held for the sent bytes. A few bytes may expand to the largest body, so decompression always waits for its turn.
func (g *Gateway) decompress(ctx context.Context, c *call, d *decoder, sent []byte) ([]byte, error) {
	defer c.memory.give(2 * int64(len(sent)))
	return inTurn(ctx, g, c, largeBody, func() ([]byte, error) {
		if err := c.hold(d.memory); err != nil {
			return nil, err
		}
		defer c.memory.give(d.memory)
		reader, err := d.open(bytes.NewReader(sent))
		if err != nil {
			return nil, decompressError(d, err)
		}
		defer func() { _ = reader.Close() }()
		body, err := c.readAll(http.MaxBytesReader(nil, reader, g.options.MaxRequestBytes))
		if err != nil {
			return nil, decompressError(d, err)
		}
		return body, nil
	})
}

func decompressError(d *decoder, err error) error {
	if _, ok := errors.AsType[*apiError](err); ok {
		return err // from hold
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return readError(err)
	}
	reason := "is damaged or incomplete"
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		reason = "needs a window of more than 8 MiB"
	}
	return invalidRequest("", "invalid_content_encoding", "We could not decompress the body of your request: it %s (%s).", reason, d.name)
}
