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

package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// header is the first line of a snapshot, before compression: the size of each of the bodies that follow.
type header struct {
	Request  int `json:"request"`
	Response int `json:"response"`
	Metadata int `json:"metadata"`
}

// decompress allocates size bytes, whatever window size the data declares. Data that expands to more is rejected, but can
// first take slightly more than twice that memory: the decoder checks the size after each block.
func decompress(compressed []byte, size int) ([]byte, error) {
	plain, err := decoder.DecodeAll(compressed, make([]byte, 0, size))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, fmt.Errorf("it has more than %d bytes", size)
	}
	if err != nil {
		return nil, err
	}
	if len(plain) != size {
		return nil, fmt.Errorf("it has %d bytes, want %d", len(plain), size)
	}
	return plain, nil
}

func join(bodies Bodies) ([]byte, error) {
	line, err := json.Marshal(header{len(bodies.Request), len(bodies.Response), len(bodies.Metadata)})
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{line, []byte("\n"), bodies.Request, bodies.Response, bodies.Metadata}, nil), nil
}

func split(plain []byte) (Bodies, error) {
	line, rest, _ := bytes.Cut(plain, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return Bodies{}, fmt.Errorf("unable to decode its header: %w", err)
	}
	var bodies Bodies
	for _, part := range []struct {
		body   *[]byte
		length int
	}{{&bodies.Request, h.Request}, {&bodies.Response, h.Response}, {&bodies.Metadata, h.Metadata}} {
		if part.length < 0 || part.length > len(rest) {
			return Bodies{}, errors.New("its header does not match its size")
		}
		if part.length > 0 {
			*part.body = rest[:part.length:part.length]
		}
		rest = rest[part.length:]
	}
	if len(rest) > 0 {
		return Bodies{}, errors.New("it has data after the last body")
	}
	return bodies, nil
}

var (
	// Base64 images rarely repeat, but use only six bits of each byte, so that entropy coding alone is worth it.
	encoder = must(zstd.NewWriter(nil, zstd.WithAllLitEntropyCompression(true)))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true)))
)

// must panics if a coder's options, which are constant, are invalid.
func must[T any](coder T, err error) T {
	if err != nil {
		panic(err)
	}
	return coder
}
