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

package testutil

import (
	"strings"
	"testing"
)

// Block is a fenced block of a document that can be run, and its expected output.
type Block struct {
	Line                   int
	Language, Code, Output string
}

// FencedBlocks returns the blocks of a Markdown document: those that are sh, go or js, each with the text block after it as its output.
func FencedBlocks(t testing.TB, document string) []Block {
	t.Helper()
	var blocks []Block
	language, start := "", 0
	var text strings.Builder
	for i, line := range strings.Split(document, "\n") {
		fence, found := strings.CutPrefix(line, "```")
		switch {
		case !found && start > 0:
			text.WriteString(line + "\n")
		case !found:
		case start == 0:
			language, start = fence, i+1
			text.Reset()
		case language == "sh", language == "go", language == "js":
			blocks = append(blocks, Block{Line: start, Language: language, Code: text.String()})
			start = 0
		case language == "text" && len(blocks) > 0:
			blocks[len(blocks)-1].Output = text.String()
			start = 0
		default:
			t.Fatalf("line %d: block has language %q, want sh, go, js or text", start, language)
		}
	}
	if start > 0 || len(blocks) == 0 {
		t.Fatal("no blocks, or an unclosed one")
	}
	return blocks
}
