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

package sqlite_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// BenchmarkResolve is a history of 64 turns of 4 KiB.
func BenchmarkResolve(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "turns.db"))
	previous := ""
	for i := range 64 {
		turn := testturn.Make(fmt.Sprintf("resp_%d", i), previous)
		turn.Request = fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("x", 4<<10))
		save(b, s, turn)
		previous = turn.ResponseID
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), previous, store.ResolveOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSave(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "turns.db"))
	i := 0
	for b.Loop() {
		turn := testturn.Make(fmt.Sprintf("resp_%d", i), "")
		turn.Request = fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("x", 4<<10))
		save(b, s, turn)
		i++
	}
}
