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
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/metered"
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

// frameBytes is the size of the data in each frame of a snapshot but the last. Parts are written while the next frames are compressed,
// and read while others are decompressed. A copy of all of 60 MiB would take 40 ms, and a garbage collection that begins meanwhile would
// stop the program until its end.
const frameBytes = 1 << 20

// encode writes bodies in their stored form, one or more frames of zstd, and returns a reference with their sizes and hash. The
// result depends only on the bodies. If the context has turns (see package metered), each frame is compressed in one.
func encode(ctx context.Context, w io.Writer, bodies Bodies) (*v1alpha1.SnapshotReference, error) {
	line := headerLine(bodies)
	plain := io.MultiReader(bytes.NewReader(line), bytes.NewReader(bodies.Request), bytes.NewReader(bodies.Response), bytes.NewReader(bodies.Metadata))
	size := len(line) + bodies.Size()
	ref, hash := &v1alpha1.SnapshotReference{SizeBytes: int64(size)}, sha256.New()
	piece, frame := make([]byte, min(size, frameBytes)), []byte(nil)
	for rest := size; rest > 0; rest -= len(piece) {
		piece = piece[:min(rest, frameBytes)]
		err := metered.Process(ctx, len(piece), func() error {
			must(io.ReadFull(plain, piece))
			must(hash.Write(piece))
			frame = snapshotEncoder.EncodeAll(piece, frame[:0])
			return nil
		})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(frame); err != nil {
			return nil, err
		}
		ref.StoredBytes += int64(len(frame))
	}
	ref.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return ref, nil
}

// Matches reports whether a reference is to these bodies, wherever and however well compressed they are stored.
func (b Bodies) Matches(ref *v1alpha1.SnapshotReference) bool {
	line, hash := headerLine(b), sha256.New()
	for _, piece := range [][]byte{line, b.Request, b.Response, b.Metadata} {
		must(hash.Write(piece))
	}
	return ref.SizeBytes == int64(len(line)+b.Size()) && ref.SHA256 == hex.EncodeToString(hash.Sum(nil))
}

// decode reads what encode has written, or any other frames of zstd. It returns an error of the reader or of a turn as it is, and ErrUnreadable if
// the data does not match the reference. It allocates as many bytes as the bodies have and about twice those of the largest frame,
// whatever window size the data declares. If the context has turns (see package metered), the data that is read at once is decompressed
// in one.
func decode(ctx context.Context, stored io.Reader, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	source := &source{reader: stored, max: ref.StoredBytes}
	bodies, err := decodeFrom(ctx, source, ref)
	switch {
	case source.err != nil:
		return Bodies{}, source.err
	case err != nil:
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	case source.read < source.max:
		return Bodies{}, fmt.Errorf("%w: %d bytes are stored, want %d", ErrUnreadable, source.read, source.max)
	}
	return bodies, nil
}

func decodeFrom(ctx context.Context, source *source, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	var plain, batch []byte
	frames, hash := bufio.NewReader(source), sha256.New()
	for last := false; !last; {
		var err error
		if batch, last, err = readFrames(frames, batch[:0]); err != nil {
			return Bodies{}, err
		}
		if plain == nil { // only now: a reference can have any size
			plain = make([]byte, 0, ref.SizeBytes)
		}
		start, damaged := len(plain), error(nil)
		if err := metered.Process(ctx, int(min(ref.SizeBytes, frameBytes)), func() error {
			plain, damaged = decompress(plain, batch)
			return nil
		}); err != nil {
			source.err = err
			return Bodies{}, err
		}
		if damaged != nil {
			return Bodies{}, damaged
		}
		for piece := range slices.Chunk(plain[start:], frameBytes) { // a batch can become all of the data
			if err := metered.Process(ctx, len(piece), func() error {
				must(hash.Write(piece))
				return nil
			}); err != nil {
				source.err = err
				return Bodies{}, err
			}
		}
	}
	switch {
	case int64(len(plain)) != ref.SizeBytes:
		return Bodies{}, fmt.Errorf("it has %d bytes, want %d", len(plain), ref.SizeBytes)
	case hex.EncodeToString(hash.Sum(nil)) != ref.SHA256:
		return Bodies{}, errors.New("its SHA-256 does not match")
	}
	return split(plain)
}

// source is a reader of at most max bytes. It counts them, and keeps the first error of its own, or of a turn.
type source struct {
	reader    io.Reader
	read, max int64
	err       error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.reader.Read(p)
	if s.read += int64(n); s.read > s.max {
		err = fmt.Errorf("%w: more than %d bytes are stored", ErrUnreadable, s.max)
	}
	if err != nil && err != io.EOF && s.err == nil { //nolint:errorlint // a wrapped EOF is a connection that was closed
		s.err = err
	}
	return n, err
}

// batchBytes is how many bytes of small frames are decompressed at once.
const batchBytes = 64 << 10

// readFrames appends the next frames, and reports whether they are the last ones.
func readFrames(r *bufio.Reader, batch []byte) (frames []byte, last bool, err error) {
	for len(batch) < batchBytes {
		if _, err := r.Peek(1); err == io.EOF {
			return batch, true, nil
		}
		if batch, err = appendFrame(r, batch); err != nil {
			return nil, false, err
		}
	}
	return batch, false, nil
}

// appendFrame appends the next frame, or skips it if it is a skippable one. The format is described in RFC 8878, section 3.1.
func appendFrame(r *bufio.Reader, frame []byte) ([]byte, error) {
	const longestHeader = 18 // zstd.HeaderMaxSize is 17
	start, err := r.Peek(longestHeader)
	if err != nil && err != io.EOF { //nolint:errorlint // see source.Read
		return nil, err
	}
	var h zstd.Header
	if err := h.Decode(start); err != nil {
		return nil, err
	}
	if h.Skippable {
		_, err := r.Discard(h.HeaderSize + int(h.SkippableSize))
		return frame, unexpected(err)
	}
	if frame, err = appendBytes(r, frame, h.HeaderSize); err != nil {
		return nil, err
	}
	const blockHeader, checksum = 3, 4
	for last := false; !last; {
		if frame, err = appendBytes(r, frame, blockHeader); err != nil {
			return nil, err
		}
		end := frame[len(frame)-blockHeader:]
		block := int(end[0]) | int(end[1])<<8 | int(end[2])<<16
		size := block >> 3
		if block>>1&3 == 1 { // one byte that is repeated
			size = 1
		}
		if frame, err = appendBytes(r, frame, size); err != nil {
			return nil, err
		}
		last = block&1 == 1
	}
	if h.HasCheckSum {
		return appendBytes(r, frame, checksum)
	}
	return frame, nil
}

// appendBytes appends the next n bytes of r, of which there must be that many.
func appendBytes(r io.Reader, b []byte, n int) ([]byte, error) {
	b = slices.Grow(b, n)
	_, err := io.ReadFull(r, b[len(b):len(b)+n])
	return b[:len(b)+n], unexpected(err)
}

// unexpected returns the error of a reader that must not end.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // see source.Read
		return io.ErrUnexpectedEOF
	}
	return err
}

// Pack returns bodies of at most v1alpha1.MaxPackedBytes in the form in which they stand in an object.
func Pack(bodies Bodies) string {
	plain := slices.Concat(headerLine(bodies), bodies.Request, bodies.Response, bodies.Metadata)
	compressed := packEncoder.EncodeAll(plain, make([]byte, 0, len(plain)))
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
	plain, err := decompress(make([]byte, 0, size), compressed)
	if err == nil && len(plain) != size {
		err = fmt.Errorf("it has %d bytes, want %d", len(plain), size)
	}
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	bodies, err := split(plain)
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return bodies, nil
}

// decompress appends the decompressed data, and rejects data that would exceed the capacity of plain. It can take slightly more than
// twice that memory first: the decoder checks the size after each block.
func decompress(plain, compressed []byte) ([]byte, error) {
	plain, err := decoder.DecodeAll(compressed, plain)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, fmt.Errorf("it has more than %d bytes", cap(plain))
	}
	return plain, err
}

// headerLine returns the first line of a snapshot.
func headerLine(bodies Bodies) []byte {
	return append(must(json.Marshal(header{len(bodies.Request), len(bodies.Response), len(bodies.Metadata)})), '\n')
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
	// Objects are small, and etcd's space is scarce. Snapshots are large, and a turn waits while they are compressed.
	packEncoder     = newEncoder(zstd.SpeedDefault)
	snapshotEncoder = newEncoder(zstd.SpeedFastest)
	decoder         = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true)))
)

// newEncoder returns an encoder. Base64 images rarely repeat, but use only six bits of each byte, so that entropy coding alone is worth it. A
// single segment has its size in its header, however small it is.
func newEncoder(level zstd.EncoderLevel) *zstd.Encoder {
	return must(zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithAllLitEntropyCompression(true), zstd.WithSingleSegment(true),
		zstd.WithWindowSize(frameBytes)))
}

// must panics on errors that cannot occur: the options of the coders are constant, a header has only numbers, and bodies are in memory.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
