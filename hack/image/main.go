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

// Command image writes the image NAME, with one static program of Go, to NAME.tar, and an SBOM of it to NAME.cdx.json in the
// current directory:
//
//	image -image=REGISTRY/NAME:VERSION -description=TEXT -commit=COMMIT -created=SECONDS PROGRAM...
//
// There is one PROGRAM for each platform, which is read from it. The same arguments and programs give the same files, byte
// for byte.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// release is what an image says about itself.
type release struct {
	tag         name.Tag // the version is the tag
	description string
	commit      string
	created     time.Time
}

// name is the last part of the repository.
func (r *release) name() string { return path.Base(r.tag.RepositoryStr()) }

func main() {
	if err := run(os.Args[1:], "."); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// run writes the files into a directory.
func run(args []string, directory string) error {
	r, paths, err := parse(args)
	if err != nil {
		return err
	}
	programs, err := readPrograms(paths)
	if err != nil {
		return err
	}
	index, err := newIndex(r, programs)
	if err != nil {
		return fmt.Errorf("unable to make the image: %w", err)
	}
	file := filepath.Join(directory, r.name())
	if err := writeFile(file+".tar", func(w io.Writer) error { return writeArchive(w, r, index) }); err != nil {
		return err
	}
	return writeFile(file+".cdx.json", func(w io.Writer) error { return writeSBOM(w, r, index, programs) })
}

func parse(args []string) (*release, []string, error) {
	var image string
	var created int64
	r := &release{}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&image, "image", "", "full name and tag, which is the version")
	flags.StringVar(&r.description, "description", "", "what the image is for")
	flags.StringVar(&r.commit, "commit", "", "the commit that the programs were built from")
	flags.Int64Var(&created, "created", 0, "time of all files, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	var err error
	if r.tag, err = name.NewTag(image, name.StrictValidation); err != nil {
		return nil, nil, fmt.Errorf("invalid name of an image: %w", err)
	}
	r.created = time.Unix(created, 0).UTC()
	return r, flags.Args(), nil
}

func writeFile(file string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return fmt.Errorf("unable to write %s: %w", file, err)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
