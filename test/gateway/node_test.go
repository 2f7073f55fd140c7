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
	"testing"
)

// TestNode runs sdk-js/acceptance.mjs, which repeats these tests with OpenAI's client for JavaScript. On Linux, npm installs
// the Node.js version that this client needs.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("sdk-js")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"npm", "ci"}, {"npm", "test"}} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Fatalf("%v: install npm, `apt-get install npm` on Debian", err)
		}
		command := exec.CommandContext(t.Context(), args[0], args[1:]...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GATEWAY_URL="+alternating)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, output)
		}
	}
}
