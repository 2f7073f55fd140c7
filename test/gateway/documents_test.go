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

package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// tools are the programs that the commands in the documents need.
var tools = []string{"bash", "curl", "jq", "openssl", "zstd"}

// TestDocuments runs the documents in the root of the repository, in an environment like that of `make run-gateway`. All
// fenced blocks of a document form one script: a sh block is copied into it, a go block is a program to run, and a text
// block is the expected output of the block before it.
func TestDocuments(t *testing.T) {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: install it, `apt-get install %s` on Debian", err, strings.Join(tools, " "))
		}
	}
	if _, err := env.ApplySamples(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeDocumented(t) })
	for _, document := range documents {
		t.Run(document, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(testutil.Root(), document))
			if err != nil {
				t.Fatal(err)
			}
			blocks := testutil.FencedBlocks(t, string(content))
			outputs := runBlocks(t, blocks)
			for i, block := range blocks {
				if diff := cmp.Diff(normalize(block.Output), normalize(outputs[i])); diff != "" {
					t.Errorf("line %d (-document +run):\n%s\nOutput:\n%s", block.Line, diff, outputs[i])
				}
			}
		})
	}
}

// documents are the documents with commands.
var documents = []string{"README.md", "docs/library.md", "docs/https.md", "docs/gateway.md", "docs/quota.md", "docs/conversations.md"}

// documentedIDs matches the IDs of responses and conversations that the documents use. Those of other tests are not removed.
var documentedIDs = regexp.MustCompile(`(resp|conv)_7[0-9]{16}`)

// removeDocumented removes the objects that the documents create, so that they can be run again.
func removeDocumented(t *testing.T) {
	t.Helper()
	kubectl, err := testenv.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	remove := [][]string{{"serviceaccount", "gateway"}, {"rolebinding", "gateway"}, {"namespace", "team-a", "team-b", "team-c"}}
	for _, document := range documents {
		content, err := os.ReadFile(filepath.Join(testutil.Root(), document))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(documentedIDs.FindAllString(string(content), -1)))) {
			kind := "responsesession"
			if strings.HasPrefix(id, "conv_") {
				kind = "conversation"
			}
			remove = append(remove, []string{kind, v1alpha1.ObjectName(id)})
		}
	}
	for _, object := range remove {
		command := exec.CommandContext(context.WithoutCancel(t.Context()), kubectl, append([]string{"--kubeconfig", env.Kubeconfig, "delete", "--ignore-not-found"}, object...)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	}
}

// runBlocks runs the blocks in order and returns the output of each.
func runBlocks(t *testing.T, blocks []testutil.Block) []string {
	t.Helper()
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString(". hack/flags.sh\n") // the same flags as for cmd/, so that compiled packages are reused
	script.WriteString("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	for i, block := range blocks {
		if block.Language == "go" {
			formatted, err := format.Source([]byte(block.Code))
			if err != nil || string(formatted) != block.Code {
				t.Errorf("line %d: not formatted with gofmt: %v", block.Line, err)
			}
			path := filepath.Join(dir, fmt.Sprintf("block%d.go", i))
			if err := os.WriteFile(path, []byte(block.Code), 0o600); err != nil {
				t.Fatal(err)
			}
			block.Code = "go run " + path + "\n"
		}
		script.WriteString(block.Code + "printf '\\036'\n")
	}
	kubectl, err := testenv.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", adapt(t, dir, script.String()))
	command.Dir = testutil.Root()
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECACHEDIR="+dir)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "run", "gateway.log")) // if it was started
		t.Fatalf("%v\n%s\n%s\n%s", err, stdout.String(), stderr.String(), log)
	}
	return strings.Split(stdout.String(), "\036")
}

var addresses = regexp.MustCompile(`127\.0\.0\.1:80\d\d`)

// adapt replaces the files and the gateway's address of `make run-gateway` with those of the test, and all other ports with
// free ones.
func adapt(t *testing.T, dir, script string) string {
	t.Helper()
	state := filepath.Join(dir, "run")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(env.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "kubeconfig"), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	replacements := []string{".run/", state + "/", "127.0.0.1:8090", strings.TrimPrefix(alternating, "http://")}
	others := slices.Compact(slices.Sorted(slices.Values(addresses.FindAllString(script, -1))))
	ports, err := subprocess.FreePorts(len(others), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, address := range others {
		replacements = append(replacements, address, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	return strings.NewReplacer(replacements...).Replace(script)
}

var randomIDs = regexp.MustCompile(`resp_[0-9a-f]{32}`)

// normalize numbers the IDs that a gateway generates, which differ from run to run.
func normalize(text string) string {
	seen := map[string]string{}
	return randomIDs.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("resp_%032d", len(seen)+1)
		}
		return seen[id]
	})
}
