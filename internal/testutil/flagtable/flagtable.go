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

// Package flagtable describes the flags of a program for a document.
package flagtable

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Of returns a table of flags in Markdown, by name. defaults replaces the defaults of flags whose value depends on the machine.
func Of(flags *pflag.FlagSet, defaults map[string]string) string {
	var table strings.Builder
	table.WriteString("| flag | default | |\n|---|---|---|\n")
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(flag)
		name := "--" + flag.Name
		if kind != "" {
			name += " " + kind
		}
		value, replaced := defaults[flag.Name]
		if !replaced {
			value = defaultOf(flag)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, value, cell(usage))
	})
	return table.String()
}

// cell returns a text as one line that does not end a cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(strings.Join(strings.Fields(text), " "))
}

// defaultOf returns the default of a flag, with a unit for sizes.
func defaultOf(flag *pflag.Flag) string {
	switch flag.DefValue {
	case "", "[]":
		return ""
	}
	size, err := strconv.ParseInt(flag.DefValue, 10, 64)
	if err != nil || !strings.Contains(flag.Name, "bytes") {
		return "`" + flag.DefValue + "`"
	}
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if size >= unit.bytes && size%unit.bytes == 0 {
			return fmt.Sprintf("`%d` (%d %s)", size, size/unit.bytes, unit.name)
		}
	}
	return "`" + flag.DefValue + "`"
}
