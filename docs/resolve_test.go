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
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store/driver"
)

// TestRulesAreDocumented: every rule's reason is documented in package v1alpha1 and in the README, and its code and HTTP status
// in the README, in the error table of the resolve API and in the documentation of InputItems.
func TestRulesAreDocumented(t *testing.T) {
	page, types := read(t, "resolve-api.md"), read(t, "../api/v1alpha1/responsesession_types.go")
	inputItems, readme := read(t, "../api/resolve/v1alpha1/inputitems_types.go"), read(t, "../README.md")
	rules := []chain.Rule{chain.NotFound}
	for rule := range chain.Reasons() {
		rules = append(rules, rule)
	}
	for _, rule := range rules {
		if reason := rule.Reason(); reason != "" {
			if !strings.Contains(types, "// Reason"+reason+":") {
				t.Errorf("responsesession_types.go has no comment for Reason%s", reason)
			}
			if !strings.Contains(readme, "`"+reason+"`") {
				t.Errorf("README.md does not contain the reason %s", reason)
			}
		}
		if rule.Code() == "" {
			continue
		}
		if row := fmt.Sprintf("| `%s` | %d |", rule.Code(), rule.HTTPStatus()); !strings.Contains(page, row) {
			t.Errorf("resolve-api.md has no row %q", row)
		}
		for _, want := range []string{string(rule.Code()), fmt.Sprint(rule.HTTPStatus())} {
			if !strings.Contains(inputItems, want) {
				t.Errorf("the comment of InputItems does not contain %s", want)
			}
		}
		if !strings.Contains(readme, "`"+string(rule.Code())+"`") {
			t.Errorf("README.md does not contain the code %s", rule.Code())
		}
	}
}

// TestParametersAreDocumented: resolve-api.md has a row for every parameter of the resolve API, and the README names it.
func TestParametersAreDocumented(t *testing.T) {
	page, readme := read(t, "resolve-api.md"), read(t, "../README.md")
	for option := range reflect.TypeFor[driver.ResolveOptions]().Fields() {
		name, _, _ := strings.Cut(option.Tag.Get("json"), ",")
		if name == "-" { // an option of the library alone
			continue
		}
		if row := "| `" + name + "` |"; !strings.Contains(page, row) {
			t.Errorf("resolve-api.md has no row %q", row)
		}
		if !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("README.md does not contain the parameter %s", name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
