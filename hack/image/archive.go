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
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeArchive writes an OCI image layout with the index as a tar archive.
func writeArchive(w io.Writer, r *release, index v1.ImageIndex) (err error) {
	directory, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	images, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}
	if err := images.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          r.tag.Name(), // containerd and podman
		"org.opencontainers.image.ref.name": r.tag.TagStr(),
	})); err != nil {
		return err
	}
	return writeTree(tar.NewWriter(w), r, os.DirFS(directory))
}

// writeTree writes all files in the order of their names.
func writeTree(w *tar.Writer, r *release, tree fs.FS) error {
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return writeEntry(w, r.created, name, 0o644, content)
	})
	if err != nil {
		return err
	}
	return w.Close()
}
