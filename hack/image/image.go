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
	"bytes"
	"io"
	"os"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is numeric, because a kubelet cannot see whether a named user is root. It owns no file of the image.
	user = "65532:65532"
	// certificatesPath is one of the paths at which crypto/x509 looks for the root certificates.
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"

	licenses = "Apache-2.0"
)

// newIndex returns an index with an image for each platform.
func newIndex(r *release, programs []*program) (v1.ImageIndex, error) {
	certificates, err := newLayer(r.created, certificatesPath, 0o644, rootCertificates())
	if err != nil {
		return nil, err
	}
	annotations := r.annotations(programs[0].info.Main.Path)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		image, err := newImage(r, p, certificates, annotations)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p.platform}})
	}
	return mutate.Annotations(index, annotations).(v1.ImageIndex), nil
}

// newImage returns the image for one platform: the certificates and the program, and nothing else. The annotations are labels too,
// for clients that show only these.
func newImage(r *release, p *program, certificates v1.Layer, annotations map[string]string) (v1.Image, error) {
	content, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	executable, err := newLayer(r.created, p.name(), 0o755, content)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS:           p.platform.OS,
		Architecture: p.platform.Architecture,
		Created:      v1.Time{Time: r.created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config:       v1.Config{User: user, Entrypoint: []string{"/" + p.name()}, WorkingDir: "/", Labels: annotations},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: certificates, History: v1.History{Created: v1.Time{Time: r.created}, Comment: "root certificates"}},
		mutate.Addendum{Layer: executable, History: v1.History{Created: v1.Time{Time: r.created}, Comment: p.name()}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, annotations).(v1.Image), nil
}

// annotations returns the annotations that the image specification defines. The module's path is the address of its repository.
func (r *release) annotations(module string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       r.name(),
		"org.opencontainers.image.description": r.description,
		"org.opencontainers.image.version":     r.tag.TagStr(),
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
		"org.opencontainers.image.source":      "https://" + module,
		"org.opencontainers.image.licenses":    licenses,
	}
}

// newLayer returns a layer with one file and its directories, which belong to root.
func newLayer(created time.Time, file string, mode int64, content []byte) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range strings.Count(file, "/") {
		directory := path.Join(strings.Split(file, "/")[:i+1]...) + "/"
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory, Mode: 0o755, ModTime: created}); err != nil {
			return nil, err
		}
	}
	if err := writeEntry(w, created, file, mode, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func writeEntry(w *tar.Writer, created time.Time, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: created}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
