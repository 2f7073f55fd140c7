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
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// textBodies returns bodies of about size bytes, half of them in the request, that compress to about half.
func textBodies(size int) Bodies {
	random := rand.New(rand.NewPCG(1, uint64(size)))
	body := func() []byte {
		var text strings.Builder
		for text.Len() < size/2 {
			fmt.Fprintf(&text, "%x ", random.Uint32()>>random.IntN(24))
		}
		return fmt.Appendf(nil, `{"text":%q}`, text.String())
	}
	return Bodies{Request: body(), Response: body()}
}

// BenchmarkPack packs the bodies of a usual turn, and of the largest one that the library stores in its object.
func BenchmarkPack(b *testing.B) {
	for _, kib := range []int{7, 128} {
		b.Run(fmt.Sprintf("KiB=%d", kib), func(b *testing.B) {
			bodies := textBodies(kib << 10)
			b.SetBytes(int64(len(bodies.Request) + len(bodies.Response)))
			for b.Loop() {
				Pack(bodies)
			}
		})
	}
}

// BenchmarkUnpack unpacks what BenchmarkPack packs.
func BenchmarkUnpack(b *testing.B) {
	for _, kib := range []int{7, 128} {
		b.Run(fmt.Sprintf("KiB=%d", kib), func(b *testing.B) {
			bodies := textBodies(kib << 10)
			packed := Pack(bodies)
			b.SetBytes(int64(len(bodies.Request) + len(bodies.Response)))
			for b.Loop() {
				if _, err := Unpack(packed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
