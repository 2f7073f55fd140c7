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
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

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
		"larger":         {encoded(packer.EncodeAll(slices.Concat(noise, noise), nil)), "do not declare a size"},
		"bomb":           {uniform[:len(uniform)/4*3], "do not declare a size"},
		"no size":        {encoded(repeated(1000)), "do not declare a size"},
		"another size":   {encoded(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x09}, repeated(4)[6:]...)), "window size exceeded"},
		"cut":            {largest[:len(largest)/8*4], "EOF"},
		"no header":      {encoded(packer.EncodeAll([]byte("hello"), nil)), "header"},
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
