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
// Package docs_test checks statements of the documents against the repository.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/testutil"
)

// testName matches the name of a test, as `test/e2e.TestAuditor`.
var testName = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`")

// TestSecurityModel: every statement of the security model names a test, and all tests that it names exist.
func TestSecurityModel(t *testing.T) {
	content, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	model, _, found := strings.Cut(string(content), "## What remains")
	if !found {
		t.Error("security.md has no section \"What remains\"")
	}
	statements := 0
	for paragraph := range strings.SplitSeq(model, "\n\n") {
		if !strings.HasPrefix(paragraph, "- ") {
			continue
		}
		for statement := range strings.SplitSeq(paragraph, "\n- ") {
			statements++
			if !testName.MatchString(statement) {
				t.Errorf("no test is named for this statement: %s", statement)
			}
		}
	}
	if statements < 20 {
		t.Errorf("got %d statements, want at least 20", statements)
	}
	wantTests(t, model)
}

// TestGatewayAPI: every row of the tables about the gateway's API names a test that exists.
func TestGatewayAPI(t *testing.T) {
	content, err := os.ReadFile("gateway-api.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(strings.TrimSpace(line), "| test |") {
			continue
		}
		rows++
		if columns := strings.Split(strings.ReplaceAll(line, `\|`, ""), "|"); len(columns) != 6 || !testName.MatchString(columns[4]) {
			t.Errorf("no test is named in the last of four columns: %s", line)
		}
	}
	if rows < 30 {
		t.Errorf("got %d rows, want at least 30", rows)
	}
	wantTests(t, string(content))
}

// wantTests checks that all tests that a document names exist.
func wantTests(t *testing.T, document string) {
	t.Helper()
	for _, name := range testName.FindAllStringSubmatch(document, -1) {
		if !exists(t, name[1], name[2]) {
			t.Errorf("test %s does not exist", name[0])
		}
	}
}

// exists reports whether a package has a test.
func exists(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testutil.Root(), dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
