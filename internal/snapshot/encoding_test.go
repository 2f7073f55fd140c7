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
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/metered"
)

// readAllFrames returns the frames of data as decode reads them, each batch by itself.
func readAllFrames(data io.Reader) (batches [][]byte, err error) {
	r := bufio.NewReader(data)
	for last := false; !last; {
		var batch []byte
		if batch, last, err = readFrames(r, nil); err != nil {
			return nil, err
		}
		batches = append(batches, batch)
	}
	return batches, nil
}

// TestEncode: a snapshot of any size has frames of frameBytes, which older builds read as well, and comes back unchanged.
func TestEncode(t *testing.T) {
	noise := make([]byte, 3*frameBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	line := len(headerLine(Bodies{Request: noise[:frameBytes]}))
	for name, tc := range map[string]struct {
		bodies     Bodies
		wantFrames int
	}{
		"no bodies":            {Bodies{}, 1},
		"a frame":              {Bodies{Request: noise[:frameBytes-line]}, 1},
		"a frame and one byte": {Bodies{Request: noise[:frameBytes-line+1]}, 2},
		"across frames":        {Bodies{Request: noise[:frameBytes], Response: noise[:frameBytes+100], Metadata: []byte(`{}`)}, 3},
		"text":                 {Bodies{Response: bytes.Repeat([]byte("catena "), frameBytes/2)}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var stored bytes.Buffer
			ref, err := encode(t.Context(), &stored, tc.bodies)
			if err != nil {
				t.Fatal(err)
			}
			whole := slices.Concat(headerLine(tc.bodies), tc.bodies.Request, tc.bodies.Response, tc.bodies.Metadata)
			if plain, err := decoder.DecodeAll(stored.Bytes(), make([]byte, 0, ref.SizeBytes)); err != nil || !bytes.Equal(plain, whole) {
				t.Errorf("all frames have %d bytes, want %d: %v", len(plain), len(whole), err)
			}
			if frames := bytes.Count(stored.Bytes(), []byte{0x28, 0xb5, 0x2f, 0xfd}); frames != tc.wantFrames {
				t.Errorf("%d frames, want %d", frames, tc.wantFrames)
			}
			got, err := decode(t.Context(), iotest.HalfReader(&stored), ref)
			if err != nil || !bytes.Equal(got.Request, tc.bodies.Request) || !bytes.Equal(got.Response, tc.bodies.Response) ||
				!bytes.Equal(got.Metadata, tc.bodies.Metadata) {
				t.Errorf("got other bodies, of %d, %d and %d bytes: %v", len(got.Request), len(got.Response), len(got.Metadata), err)
			}
		})
	}
}

// TestForeignFrames: frames of any other compressor are read too.
func TestForeignFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stored, plain bytes.Buffer
		for range rapid.IntRange(1, 4).Draw(t, "frames") {
			writer, err := zstd.NewWriter(&stored, zstd.WithEncoderLevel(zstd.EncoderLevel(rapid.IntRange(1, 4).Draw(t, "level"))),
				zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(128<<10), zstd.WithEncoderCRC(rapid.Bool().Draw(t, "checksum")),
				zstd.WithSingleSegment(rapid.Bool().Draw(t, "single segment")), zstd.WithZeroFrames(true))
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 3).Draw(t, "blocks") {
				block := bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "pattern"), rapid.IntRange(0, 5000).Draw(t, "times"))
				plain.Write(block)
				_, err := writer.Write(block)
				if err := errors.Join(err, writer.Flush()); err != nil {
					t.Fatal(err)
				}
			}
			if err := writer.Close(); err != nil {
				t.Fatal(err)
			}
		}
		batches, err := readAllFrames(&stored)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 0, plain.Len())
		for _, batch := range batches {
			if got, err = decompress(got, batch); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, plain.Bytes()) {
			t.Errorf("got %d bytes, want %d", len(got), plain.Len())
		}
	})
}

// TestDecode: what does not match the reference is unreadable, but not if it could not be read.
func TestDecode(t *testing.T) {
	bodies := Bodies{Request: []byte(`{"input":"` + strings.Repeat("ab", 200) + `"}`)}
	var buffer bytes.Buffer
	ref, err := encode(t.Context(), &buffer, bodies)
	if err != nil {
		t.Fatal(err)
	}
	stored := buffer.Bytes()
	for cut := range stored {
		if _, err := decode(t.Context(), bytes.NewReader(stored[:cut]), ref); !errors.Is(err, ErrUnreadable) {
			t.Errorf("cut after %d of %d bytes: got %v, want it unreadable", cut, len(stored), err)
		}
		closed := fmt.Errorf("the connection was closed: %w", io.EOF)
		failing := io.MultiReader(bytes.NewReader(stored[:cut]), iotest.ErrReader(closed))
		if _, err := decode(t.Context(), failing, ref); err != closed { //nolint:errorlint // it is returned as it is
			t.Errorf("a reader that fails after %d of %d bytes: got %v, want %v", cut, len(stored), err, closed)
		}
	}
	empty := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0}
	for name, tc := range map[string]struct {
		stored []byte
		change func(*v1alpha1.SnapshotReference)
		want   string
	}{
		"more than stored": {append(bytes.Clone(stored), 0), nil, "more than"},
		"a frame more":     {append(bytes.Clone(stored), stored...), func(ref *v1alpha1.SnapshotReference) { ref.StoredBytes *= 2 }, "it has more than"},
		"an empty frame more": {append(bytes.Clone(stored), empty...), func(ref *v1alpha1.SnapshotReference) {
			ref.StoredBytes += int64(len(empty))
		}, ""},
		"less than its size":                {stored, func(ref *v1alpha1.SnapshotReference) { ref.SizeBytes++ }, " bytes, want "},
		"less than stored":                  {stored, func(ref *v1alpha1.SnapshotReference) { ref.StoredBytes++ }, "bytes are stored, want"},
		"another hash":                      {stored, func(ref *v1alpha1.SnapshotReference) { ref.SHA256 = strings.Repeat("0", 64) }, "SHA-256"},
		"a skippable frame":                 {append(pad(nil, 20), stored...), func(ref *v1alpha1.SnapshotReference) { ref.StoredBytes += 20 }, ""},
		"a skippable frame without its end": {pad(nil, 20)[:19], nil, "EOF"},
		"a dictionary":                      {append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc3, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}, "\x29\x00\x00hello"...), nil, "bytes, want"},
		"a block without data":              {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 0xff, 0xff, 0xff}, nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			ref := *ref
			if tc.change != nil {
				tc.change(&ref)
			}
			got, err := decode(t.Context(), bytes.NewReader(tc.stored), &ref)
			if tc.want == "" {
				if diff := cmp.Diff(bodies, got); err != nil || diff != "" {
					t.Errorf("error %v, bodies (-want +got):\n%s", err, diff)
				}
			} else if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it unreadable because %q", err, tc.want)
			}
		})
	}
}

// FuzzReadFrames: any data is an error or comes back in frames, and what the decompressor accepts is no error.
func FuzzReadFrames(f *testing.F) {
	f.Add(packEncoder.EncodeAll([]byte("hello"), packEncoder.EncodeAll(nil, nil)))
	f.Add(repeated(3))
	f.Add(pad(nil, 20))
	f.Fuzz(func(t *testing.T, data []byte) {
		batches, err := readAllFrames(bytes.NewReader(data))
		skippable := bytes.Contains(data, []byte{0x2a, 0x4d, 0x18})
		if err == nil && !skippable && !bytes.Equal(slices.Concat(batches...), data) {
			t.Errorf("%x is read as %x", data, batches)
		}
		if _, decodes := decoder.DecodeAll(data, make([]byte, 0, 1<<20)); decodes == nil && err != nil {
			t.Errorf("%x cannot be read: %v", data, err)
		}
	})
}

// TestPack: packed bodies are returned as they were, and do not become much larger.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 5000)
		want := Bodies{Request: nilIfEmpty(body.Draw(t, "request")), Response: nilIfEmpty(body.Draw(t, "response")), Metadata: nilIfEmpty(body.Draw(t, "metadata"))}
		packed := Pack(want)
		if stored := base64.StdEncoding.DecodedLen(len(packed)); stored > want.Size()+Overhead {
			t.Fatalf("%d bytes are packed into %d", want.Size(), stored)
		}
		size, err := UnpackedSize(packed)
		if err != nil || size < want.Size() || size > want.Size()+Overhead {
			t.Errorf("the size of %d bytes is %d: %v", want.Size(), size, err)
		}
		got, err := Unpack(packed)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v, bodies (-want +got):\n%s", err, diff)
		}
	})
}

func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// TestUnpack: data that Pack has not written is unreadable, whatever it expands to.
func TestUnpack(t *testing.T) {
	noise := make([]byte, v1alpha1.MaxPackedBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	largest, uniform := Pack(Bodies{Request: noise}), Pack(Bodies{Request: make([]byte, v1alpha1.MaxPackedBytes)})
	for name, packed := range map[string]string{"noise": largest, "zeros": uniform} {
		if _, err := Unpack(packed); err != nil {
			t.Errorf("the largest bodies, %s: %v", name, err)
		}
	}
	encoded := base64.StdEncoding.EncodeToString
	for name, tc := range map[string]struct{ packed, want string }{
		"nothing":        {"", "EOF"},
		"no base64":      {"{}", "base64"},
		"no base64 soon": {largest[:1000] + "!" + largest[1001:], "base64"},
		"not compressed": {encoded([]byte("hello, world")), "magic"},
		"larger":         {encoded(packEncoder.EncodeAll(slices.Concat(noise, noise), nil)), "do not declare a size"},
		"bomb":           {uniform[:len(uniform)/4*3], "do not declare a size"},
		"no size":        {encoded(repeated(1000)), "do not declare a size"},
		"another size":   {encoded(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x09}, repeated(4)[6:]...)), "window size exceeded"},
		"cut":            {largest[:len(largest)/8*4], "EOF"},
		"no header":      {encoded(packEncoder.EncodeAll([]byte("hello"), nil)), "header"},
		"damaged":        {largest[:1000] + strings.Repeat("A", 4) + largest[1004:], "CRC"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Unpack(tc.packed)
			if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it unreadable because %q", err, tc.want)
			}
		})
	}
}

// FuzzUnpack: any data is unreadable or has bodies of the size that it declares.
func FuzzUnpack(f *testing.F) {
	packed := Pack(Bodies{Request: []byte(`{"input":"hello"}`), Response: []byte(`{"output":[]}`)})
	f.Add(packed)
	f.Add(base64.StdEncoding.EncodeToString(repeated(2)))
	f.Fuzz(func(t *testing.T, packed string) {
		bodies, err := Unpack(packed)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) {
				t.Errorf("got %v, want ErrUnreadable", err)
			}
			return
		}
		if size, err := UnpackedSize(packed); err != nil || bodies.Size() > size || size > v1alpha1.MaxPackedBytes+Overhead {
			t.Errorf("bodies of %d bytes with a declared size of %d: %v", bodies.Size(), size, err)
		}
	})
}

// TestTurns: large bodies are compressed and decompressed in turns, and an error of a turn says nothing about the bodies.
func TestTurns(t *testing.T) {
	refused := errors.New("no turn")
	most, count := frameBytes, 0
	ctx := metered.WithTurns(t.Context(), func(_ context.Context, bytes int, work func() error) error {
		if count++; bytes > most {
			return refused
		}
		return work()
	})
	want := Bodies{Request: bytes.Repeat([]byte("request "), 5*frameBytes/16)}
	var buffer bytes.Buffer
	ref, err := encode(ctx, &buffer, want)
	if err != nil || count != 3 {
		t.Fatalf("got %v after %d turns, want 3", err, count)
	}
	stored := buffer.Bytes()
	got, err := decode(ctx, bytes.NewReader(stored), ref)
	if !bytes.Equal(want.Request, got.Request) || err != nil || count < 7 {
		t.Errorf("got %d bytes and %v after %d turns", got.Size(), err, count)
	}
	most = 0
	if _, err := encode(ctx, io.Discard, want); err != refused { //nolint:errorlint // it is returned as it is
		t.Errorf("encode: got %v, want %v", err, refused)
	}
	if _, err := decode(ctx, bytes.NewReader(stored), ref); err != refused { //nolint:errorlint // it is returned as it is
		t.Errorf("decode: got %v, want %v", err, refused)
	}
}
