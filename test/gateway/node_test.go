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
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestNode runs the files in sdk-js, which test the gateway with clients for JavaScript. On Linux, npm installs the Node.js
// version that these clients need.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("sdk-js")); err != nil {
		t.Fatal(err)
	}
	shortLived, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Upstream: engineURL, Race: true, Args: []string{"--websocket-lifetime=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shortLived.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("GATEWAY_URL", alternating)
	t.Setenv("REPLICA_URLS", replicas[0].URL+","+replicas[1].URL)
	t.Setenv("SHORT_LIVED_URL", shortLived.URL)
	npm(t, dir, "ci")
	for name, file := range map[string]string{
		"scripted engine": "acceptance.mjs",
		"strict engine":   "responses.mjs",
		"Vercel AI SDK":   "ai-sdk.mjs",
		"Agents SDK":      "agents.mjs",
		"conversations":   "conversations.mjs",
		"WebSocket":       "websocket.mjs",
	} {
		t.Run(name, func(t *testing.T) { npm(t, dir, "test", "--", file) })
	}
	t.Run("document", func(t *testing.T) { runPrograms(t, dir, "docs/agents-sdk.md") })
}

// runPrograms runs the js blocks of a document and compares their output with that in the document.
func runPrograms(t *testing.T, dir, document string) {
	t.Helper()
	t.Setenv("OPENAI_BASE_URL", alternating+"/v1")
	t.Setenv("OPENAI_API_KEY", "none")
	content, err := os.ReadFile(filepath.Join(testutil.Root(), document))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range testutil.FencedBlocks(t, string(content)) {
		program := filepath.Join(dir, "document.mjs")
		if err := os.WriteFile(program, []byte(block.Code), 0o600); err != nil {
			t.Fatal(err)
		}
		output := npm(t, dir, "exec", "--offline", "--", "node", program)
		if diff := cmp.Diff(block.Output, output); diff != "" {
			t.Errorf("%s, line %d (-document +run):\n%s", document, block.Line, diff)
		}
	}
}

// npm runs npm and returns its output.
func npm(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Fatalf("%v: install npm, `apt-get install npm` on Debian", err)
	}
	command := exec.CommandContext(t.Context(), "npm", args...)
	command.Dir = dir
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("npm %v: %v\n%s", args, err, output)
	}
	return string(output)
}
