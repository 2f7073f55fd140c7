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
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// header is the first line of a snapshot, before compression: the size of each of the bodies that follow.
type header struct {
	Request  int `json:"request"`
	Response int `json:"response"`
	Metadata int `json:"metadata"`
}

// maxExpansion is how many times its own size packed data may have unpacked, beyond freeExpansion. Without a limit, an object of a few
// hundred bytes could cost each replica of the operator as much as one of MaxPackedBytes. Bodies usually become two to four times
// smaller; those that become even smaller are padded.
const (
	maxExpansion  = 4
	freeExpansion = 4 << 10
)

// Pack returns bodies of at most v1alpha1.MaxPackedBytes in the form in which they stand in an object.
func Pack(bodies Bodies) string {
	plain := join(bodies)
	compressed := packer.EncodeAll(plain, make([]byte, 0, len(plain)))
	return base64.StdEncoding.EncodeToString(pad(compressed, (len(plain)-freeExpansion+maxExpansion-1)/maxExpansion))
}

// pad adds a skippable frame, which decoders ignore, to data that is smaller than size.
func pad(compressed []byte, size int) []byte {
	if len(compressed) >= size {
		return compressed
	}
	const magic, overhead = 0x184d2a50, 8 // a frame begins with a magic number and its size
	rest := max(0, size-len(compressed)-overhead)
	compressed = binary.LittleEndian.AppendUint32(compressed, magic)
	compressed = binary.LittleEndian.AppendUint32(compressed, uint32(rest))
	return append(compressed, make([]byte, rest)...)
}

// UnpackedSize returns the size of the result of Unpack, in bytes. It returns ErrUnreadable if that is larger than Pack accepts, or
// unknown.
func UnpackedSize(packed string) (int, error) {
	var frame zstd.Header
	start, err := base64.StdEncoding.DecodeString(packed[:min(len(packed), base64.StdEncoding.EncodedLen(zstd.HeaderMaxSize))])
	if err == nil {
		err = frame.Decode(start)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	size := base64.StdEncoding.DecodedLen(len(packed))
	limit := min(v1alpha1.MaxPackedBytes+Overhead, freeExpansion+maxExpansion*size)
	if !frame.HasFCS || frame.FrameContentSize > uint64(limit) {
		return 0, fmt.Errorf("%w: its %d bytes do not declare a size of at most %d", ErrUnreadable, size, limit)
	}
	return int(frame.FrameContentSize), nil
}

// Unpack returns the bodies from the result of Pack, and ErrUnreadable if it is damaged or larger than Pack accepts.
func Unpack(packed string) (Bodies, error) {
	size, err := UnpackedSize(packed)
	if err != nil {
		return Bodies{}, err
	}
	compressed, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	plain, err := decompress(compressed, size)
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	bodies, err := split(plain)
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return bodies, nil
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

func join(bodies Bodies) []byte {
	line := must(json.Marshal(header{len(bodies.Request), len(bodies.Response), len(bodies.Metadata)}))
	return slices.Concat(line, []byte("\n"), bodies.Request, bodies.Response, bodies.Metadata)
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
	// A single segment has its size in its header, however small it is.
	packer  = must(zstd.NewWriter(nil, zstd.WithAllLitEntropyCompression(true), zstd.WithSingleSegment(true), zstd.WithWindowSize(packerWindow)))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true)))
)

// packerWindow is the next power of two from the size of the largest bodies that are packed.
const packerWindow = 1 << 20

// must panics on errors that cannot occur: the options of the coders are constant, and a header has only numbers.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
