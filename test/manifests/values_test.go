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

package manifests_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/catena-dev/catena/internal/testutil"
)

var update = flag.Bool("update", false, "update the table of values in the chart's README.md")

// value is a value of the chart that users set, with its comment.
type value struct {
	path     string // gateway.image.tag
	value    *yaml.Node
	document string
}

// readValues returns the values in values.yaml in their order. Objects that are empty, or have a comment of their own, are one value.
func readValues(t *testing.T) []value {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(testutil.Root(), chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	var values []value
	var read func(prefix string, object *yaml.Node)
	read = func(prefix string, object *yaml.Node) {
		for i := 0; i < len(object.Content); i += 2 {
			key, node := object.Content[i], object.Content[i+1]
			document := strings.TrimSpace(strings.ReplaceAll(key.HeadComment, "# ", ""))
			document = strings.ReplaceAll(document, "\n", " ")
			if node.Kind == yaml.MappingNode && len(node.Content) > 0 && document == "" {
				read(prefix+key.Value+".", node)
				continue
			}
			values = append(values, value{prefix + key.Value, node, document})
		}
	}
	read("", document.Content[0])
	return values
}

// TestValuesAreDocumented: every value has a comment, and README.md has them all.
func TestValuesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	for _, v := range readValues(t) {
		if v.document == "" {
			t.Errorf("%s has no comment", v.path)
		}
		var fallback any
		if err := v.value.Decode(&fallback); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(fallback)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.path, text, v.document)
	}
	file := filepath.Join(testutil.Root(), chartDir, "README.md")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- values -->\n", "<!-- end -->\n"
	before, rest, _ := strings.Cut(string(content), begin)
	old, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("README.md has no %sand %s", begin, end)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), old); diff != "" {
		t.Errorf("the table in README.md is stale, run the test with -update (-values.yaml +README.md):\n%s", diff)
	}
}

// TestSchemaIsComplete: the schema describes every value, and rejects others in all objects that have fixed keys.
func TestSchemaIsComplete(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(testutil.Root(), chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	inValues := map[string]bool{"global": true} // Helm's own
	for _, v := range readValues(t) {
		inValues[v.path] = true
	}
	var visit func(path string, node map[string]any)
	visit = func(path string, node map[string]any) {
		if ref, _ := node["$ref"].(string); ref != "" {
			node = schema["definitions"].(map[string]any)[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		}
		properties, isObject := node["properties"].(map[string]any)
		if inValues[path] || !isObject {
			if !inValues[path] {
				t.Errorf("values.yaml does not have %s", path)
			}
			delete(inValues, path)
			return
		}
		if node["additionalProperties"] != false {
			t.Errorf("the schema accepts unknown values in %q", path)
		}
		for name, property := range properties {
			visit(strings.TrimPrefix(path+"."+name, "."), property.(map[string]any))
		}
	}
	visit("", schema)
	for path := range inValues {
		t.Errorf("the schema does not have %s", path)
	}
}
