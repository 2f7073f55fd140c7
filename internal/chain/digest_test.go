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

package chain

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestDigest pins digests: clients keep them, so they must never change.
func TestDigest(t *testing.T) {
	for name, tc := range map[string]struct {
		request, response string
		want              string
	}{
		"nothing": {
			want: "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945", // []
		},
		"instructions only": {
			request: `{"instructions":"be brief"}`,
			want:    digestOf(`[{"type":"message","role":"system","content":[{"type":"input_text","text":"be brief"}]}]`),
		},
		"items as they are": {
			request: `{"input":[{ "a" : 1.0 }]}`, response: `{"output":[{"b":"é\u00e9"}]}`,
			want: digestOf(`[{ "a" : 1.0 },{"b":"é\u00e9"}]`),
		},
		"everything": {
			request: `{"input":"hi","instructions":"be brief"}`, response: `{"output":[{"b":1}]}`,
			want: "sha256:82b6a2c23c750b1ad06fc309d30f6c125b6ec807813d7fe749c46571adc66220",
		},
	} {
		t.Run(name, func(t *testing.T) {
			items, err := Flatten([]byte(tc.request), []byte(tc.response))
			if err != nil {
				t.Fatal(err)
			}
			if items.HasDigest() {
				t.Error("the digest is computed before it is needed")
			}
			if got := items.Digest(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func digestOf(list string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(list))) }

// TestDigestInSteps checks that concurrent steps of any size give the digest of the whole list, and hash each byte once.
func TestDigestInSteps(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		instructions := rapid.StringMatching(`[a-z]{0,40}`).Draw(r, "instructions")
		list := rapid.SliceOfN(rapid.StringMatching(`\{"[a-z]{0,30}":[0-9]\}`), 0, 5).Draw(r, "items")
		items, err := Flatten(fmt.Appendf(nil, `{"instructions":%q,"input":[%s]}`, instructions, strings.Join(list, ",")), nil)
		if err != nil {
			r.Fatal(err)
		}
		want := "[" + strings.Join(list, ",") + "]"
		if instructions != "" {
			want = "[" + strings.Join(append([]string{string(items.Instructions)}, list...), ",") + "]"
		}
		size, hashed := items.Size(), 0
		for !items.HasDigest() {
			most := rapid.IntRange(-1, 50).Draw(r, "step")
			n := items.HashSome(most)
			if n < 1 || n > max(most, 1) {
				r.Fatalf("a step of at most %d bytes hashed %d", most, n)
			}
			hashed += n
		}
		if hashed != len(want) || items.HashSome(1) != 0 {
			r.Fatalf("%d bytes were hashed, want %d", hashed, len(want))
		}
		if got := items.Digest(); got != digestOf(want) {
			r.Fatalf("got %s, want that of %s", got, want)
		}
		if items.Size() != size {
			r.Fatal("the size has changed")
		}
	})
}

// TestDigestConcurrently: concurrent callers get the same digest, and share the work.
func TestDigestConcurrently(t *testing.T) {
	item := `{"text":"` + strings.Repeat("x", 5*maxCopy) + `"}`
	items, err := Flatten([]byte(`{"input":[`+item+`,`+item+`]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	hashed := make([]int, 8)
	for i := range hashed {
		all.Go(func() {
			for n := 1; n > 0; hashed[i] += n {
				n = items.HashSome(10 * maxCopy)
			}
			if got, want := items.Digest(), digestOf("["+item+","+item+"]"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	all.Wait()
	total := 0
	for _, n := range hashed {
		total += n
	}
	if want := 2*len(item) + len("[,]"); total != want {
		t.Errorf("%d bytes were hashed, want %d", total, want)
	}
}

func BenchmarkDigest(b *testing.B) {
	request := []byte(`{"input":[{"text":"` + strings.Repeat("x", 16<<20) + `"}]}`)
	items, err := Flatten(request, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(request)))
	for b.Loop() {
		items.digest = digest{}
		items.Digest()
	}
}
