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
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/internal/backup"
)

const exportUsage = `Export the sessions and the conversations of a namespace, with all bodies, to a file that "catena import" reads.

Usage: catena export [flags]

`

type exportOptions struct {
	*clusterOptions
	output          string
	allowUnreadable bool
}

func newExportFlags() (*pflag.FlagSet, *exportOptions) {
	flags := newFlags("export", exportUsage)
	o := &exportOptions{clusterOptions: addClusterFlags(flags, "Namespace to export. The default is that of the kubeconfig context.")}
	flags.StringVarP(&o.output, "output", "o", "-", "File to write, which must not exist; - for stdout.")
	flags.BoolVar(&o.allowUnreadable, "allow-unreadable", false,
		"Exit with 0 even if bodies of large turns, or conversations and summaries, could not be read. They are not in the file, and reported.")
	return flags, o
}

// runExport runs "catena export". The file is the only output on stdout.
func runExport(ctx context.Context, args []string) error {
	flags, o := newExportFlags()
	if err := parseArguments(flags, args, 0); err != nil {
		return err
	}
	problems := &problemList{out: os.Stderr}
	cluster, namespace, err := o.open(ctx, problems)
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	var exported *backup.Exported
	err = writeOutput(o.output, func(out io.Writer) (err error) {
		exported, err = cluster.Export(ctx, namespace, out)
		return err
	})
	problems.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Exported %d sessions of namespace %s, %d of them with bodies outside their objects, %d conversations and %d summaries.\n",
		exported.Sessions, namespace, exported.Snapshots, exported.Conversations, exported.Summaries)
	if exported.Unreadable+exported.LeftOut > 0 && !o.allowUnreadable {
		return fmt.Errorf("the bodies of %d sessions could not be read, nor could %d conversations and summaries: "+
			"these are not in the file, and everything else is; with --allow-unreadable, this is no error", exported.Unreadable, exported.LeftOut)
	}
	return nil
}

// writeOutput writes a file, which only the user can read, or stdout. The file has its name only once it is complete and on disk, and it
// replaces none. Until then its name, in the same directory, is one that nobody can foresee, so that it is neither another user's symbolic
// link nor the file of another export.
func writeOutput(path string, write func(io.Writer) error) error {
	if path == "-" {
		return write(os.Stdout)
	}
	if err := unused(path); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.partial")
	if err != nil {
		return fmt.Errorf("unable to create the file: %w", err)
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = publish(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// unused returns an error if there is a file, or a symbolic link, with a name.
func unused(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: choose another name", path)
	}
	return nil
}

// publish gives a temporary file its name, unless another file has it by now.
func publish(temporary, path string) error {
	if os.Link(temporary, path) == nil {
		return os.Remove(temporary)
	}
	if err := unused(path); err != nil {
		return err
	}
	return os.Rename(temporary, path) // the file system has no hard links
}

// newFlags returns the flags of a subcommand.
func newFlags(name, usage string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage, "Flags:\n", flags.FlagUsages()) }
	return flags
}

// parseArguments parses the command line of a subcommand that takes a number of arguments.
func parseArguments(flags *pflag.FlagSet, args []string, count int) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != count {
		flags.Usage()
		return fmt.Errorf("%s takes %d arguments, not %d", flags.Name(), count, flags.NArg())
	}
	return nil
}
