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
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/backup"
)

func TestReport(t *testing.T) {
	const first = "Namespace a of cluster u, exported at 2026-01-02T03:04:05Z, into namespace b:\n"
	header := backup.Header{Namespace: "a", ClusterUID: "u", ExportedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	tests := map[string]struct {
		imported backup.Imported
		dryRun   bool
		want     string
	}{
		"whole": {imported: backup.Imported{Sessions: backup.Counts{Created: 2, Equal: 1, Verified: 3}}, want: "" +
			"  2 created, 1 exist already, 0 different, 0 refused, 0 left out\n" +
			"  3 verified: their whole histories are stored as they were exported; 0 wrong\n"},
		"broken and wrong": {imported: backup.Imported{Sessions: backup.Counts{Created: 6, Verified: 1, Broken: 3, Wrong: 2}, WithoutBodies: 1}, want: "" +
			"  6 created, 0 exist already, 0 different, 0 refused, 0 left out\n" +
			"  1 without their bodies, which could not be read when they were exported\n" +
			"  3 not verified: their histories were broken when they were exported, by a missing turn, missing bodies or a cycle\n" +
			"  1 verified: their whole histories are stored as they were exported; 2 wrong\n"},
		"conversations": {imported: backup.Imported{Conversations: backup.Counts{Created: 2, LeftOut: 1, Verified: 1, Broken: 1}, Summaries: backup.Counts{Equal: 1, Wrong: 1}}, want: "" +
			"  0 created, 0 exist already, 0 different, 0 refused, 0 left out\n" +
			"  0 verified: their whole histories are stored as they were exported; 0 wrong\n" +
			"  conversations: 2 created, 0 exist already, 0 different, 0 refused, 1 left out; 1 verified, 1 not verified, 0 wrong\n" +
			"  summaries: 0 created, 1 exist already, 0 different, 0 refused, 0 left out; 0 verified, 0 not verified, 1 wrong\n"},
		"dry run": {imported: backup.Imported{Sessions: backup.Counts{Created: 1}}, dryRun: true, want: "" +
			"  1 would be created, 0 exist already, 0 different, 0 would be refused, 0 would be left out\n"},
		"dry run, broken and wrong": {imported: backup.Imported{Sessions: backup.Counts{Created: 5, Broken: 3, Wrong: 2}}, dryRun: true, want: "" +
			"  5 would be created, 0 exist already, 0 different, 0 would be refused, 0 would be left out\n" +
			"  3 not verified: their histories were broken when they were exported, by a missing turn, missing bodies or a cycle\n" +
			"  2 would be wrong: they would have another history than when they were exported\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.imported.Header, tc.imported.Namespace = header, "b"
			var out bytes.Buffer
			report(&out, &tc.imported, tc.dryRun)
			if diff := cmp.Diff(first+tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestProblemList: a list of any length is short, and does not hide that it is.
func TestProblemList(t *testing.T) {
	for problems, want := range map[int]string{0: "", 1: "", maxProblems: "", maxProblems + 2: "… and 2 more\n"} {
		t.Run(fmt.Sprint(problems), func(t *testing.T) {
			var out bytes.Buffer
			list := &problemList{out: &out}
			for range problems {
				list.add("a", "is gone")
			}
			list.end()
			if diff := cmp.Diff(strings.Repeat("a: is gone\n", min(problems, maxProblems))+want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
