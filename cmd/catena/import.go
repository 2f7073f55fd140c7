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
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/internal/backup"
)

const importUsage = `Create the sessions and the conversations of a file that "catena export" has written, and verify them. Those that exist
are not changed: the same ones are skipped, so that an import can be repeated after an interruption, and different ones are reported.

Usage: catena import [flags] FILE

If FILE is -, it is stdin. A file is checked before anything is created.

A turn is verified if it and all turns before it are stored as they were exported, with their bodies. Turns whose histories were broken
when they were exported, because a turn or its bodies were missing or because of a cycle, are counted, and never verified. A conversation
is verified if its last turn is, and a summary if its conversation is. The exit code is 1 if anything in the file is not stored as it was
exported.

`

type importOptions struct {
	*clusterOptions
	dryRun bool
}

func newImportFlags() (*pflag.FlagSet, *importOptions) {
	flags := newFlags("import", importUsage)
	o := &importOptions{clusterOptions: addClusterFlags(flags, "Namespace to import into, which must exist. The default is the exported one.")}
	flags.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "Number of objects that are created at once.")
	flags.BoolVar(&o.dryRun, "dry-run", false, "Only report what would be done, and whether the API server would accept it.")
	return flags, o
}

// runImport runs "catena import".
func runImport(ctx context.Context, args []string) error {
	flags, o := newImportFlags()
	if err := parseArguments(flags, args, 1); err != nil {
		return err
	}
	in := io.ReadCloser(os.Stdin)
	if path := flags.Arg(0); path != "-" {
		var err error
		if in, err = os.Open(path); err != nil {
			return fmt.Errorf("unable to open the file: %w", err)
		}
	}
	defer func() { _ = in.Close() }()
	problems := &problemList{out: os.Stdout}
	cluster, _, err := o.open(ctx, problems)
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	imported, err := cluster.Import(ctx, in, backup.ImportOptions{Namespace: o.namespace, DryRun: o.dryRun})
	problems.end()
	if err != nil {
		return err
	}
	report(os.Stdout, imported, o.dryRun)
	switch {
	case imported.Complete():
		return nil
	case o.dryRun:
		return errors.New("not everything in the file would be stored as it was exported: see what is listed above")
	}
	return errors.New("not everything in the file is stored as it was exported: see what is listed above")
}

// report writes the summary of an import.
func report(out io.Writer, i *backup.Imported, dryRun bool) {
	fmt.Fprintf(out, "Namespace %s of cluster %s, exported at %s, into namespace %s:\n",
		i.Header.Namespace, i.Header.ClusterUID, i.Header.ExportedAt.Format(time.RFC3339), i.Namespace)
	would := ""
	if dryRun {
		would = "would be "
	}
	s := &i.Sessions
	fmt.Fprintf(out, "  %d %screated, %d exist already, %d different, %d %srefused, %d %sleft out\n",
		s.Created, would, s.Equal, s.Different, s.Refused, would, s.LeftOut, would)
	if i.WithoutBodies > 0 {
		fmt.Fprintf(out, "  %d without their bodies, which could not be read when they were exported\n", i.WithoutBodies)
	}
	if s.Broken > 0 {
		fmt.Fprintf(out, "  %d not verified: their histories were broken when they were exported, by a missing turn, missing bodies or a cycle\n", s.Broken)
	}
	switch {
	case !dryRun:
		fmt.Fprintf(out, "  %d verified: their whole histories are stored as they were exported; %d wrong\n", s.Verified, s.Wrong)
	case s.Wrong > 0:
		fmt.Fprintf(out, "  %d would be wrong: they would have another history than when they were exported\n", s.Wrong)
	}
	reportOthers(out, "conversations", &i.Conversations, would)
	reportOthers(out, "summaries", &i.Summaries, would)
}

// reportOthers writes the summary of an import for conversations or their summaries, if there are any.
func reportOthers(out io.Writer, noun string, c *backup.Counts, would string) {
	if c.Total() == 0 {
		return
	}
	fmt.Fprintf(out, "  %s: %d %screated, %d exist already, %d different, %d %srefused, %d %sleft out; %d verified, %d not verified, %d %swrong\n",
		noun, c.Created, would, c.Equal, c.Different, c.Refused, would, c.LeftOut, would, c.Verified, c.Broken, c.Wrong, would)
}
