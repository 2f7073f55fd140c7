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

// Package golden compares test results with files under testdata, and with generated sections of documents. With the flag -update, it
// writes them instead.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil"
)

var update = flag.Bool("update", false, "write the golden files under testdata and the generated sections of documents instead of comparing with them")

// Check compares got with testdata/NAME.golden, with hyphens for the spaces in name.
func Check(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: create the file with go test -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); update the file with go test -update:\n%s", path, diff)
	}
}

// Section compares got with the section of a document that is between the lines <!-- BEGIN name --> and <!-- END name -->. The path of the
// document is that in the repository.
func Section(t testing.TB, document, name, got string) {
	t.Helper()
	path := filepath.Join(testutil.Root(), filepath.FromSlash(document))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- BEGIN "+name+" -->\n", "<!-- END "+name+" -->\n"
	before, rest, hasBegin := strings.Cut(string(content), begin)
	want, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no lines %q and %q", document, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+got+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the section %q of %s is out of date (-want +got); update it with go test -update:\n%s", name, document, diff)
	}
}
