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

package main

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/internal/operator"
	"github.com/catena-dev/catena/internal/testutil/flagtable"
	"github.com/catena-dev/catena/internal/testutil/golden"
)

// TestFlagsInDocs: docs/operations.md lists all flags.
func TestFlagsInDocs(t *testing.T) {
	flags := pflag.NewFlagSet("catena", pflag.ContinueOnError)
	(&options{operator: operator.NewOptions()}).addFlags(flags)
	golden.Section(t, "docs/operations.md", "operator flags", flagtable.Of(flags, nil))
	exportFlags, _ := newExportFlags()
	golden.Section(t, "docs/operations.md", "export flags", flagtable.Of(exportFlags, nil))
	importFlags, _ := newImportFlags()
	golden.Section(t, "docs/operations.md", "import flags", flagtable.Of(importFlags, nil))
}
