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
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

var arguments = []string{"-image=example.com/team/greeter:v1.2.3", "-description=Says hello", "-commit=0123abc", "-created=1700000000"}

// build compiles testdata/hello into a new directory.
func build(t *testing.T, environment ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hello")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", file, "./testdata/hello")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), environment...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unable to build hello: %v\n%s", err, output)
	}
	return file
}

// makeImage writes an image of the programs and returns the directory.
func makeImage(t *testing.T, programs ...string) string {
	t.Helper()
	directory := t.TempDir()
	if err := run(append(slices.Clone(arguments), programs...), directory); err != nil {
		t.Fatal(err)
	}
	return directory
}

// TestReproducible makes one image twice, from programs in other directories and with other times.
func TestReproducible(t *testing.T) {
	first := makeImage(t, build(t, "GOARCH=amd64"), build(t, "GOARCH=arm64"))
	second := makeImage(t, build(t, "GOARCH=amd64"), build(t, "GOARCH=arm64"))
	for _, name := range []string{"greeter.tar", "greeter.cdx.json"} {
		a, b := read(t, filepath.Join(first, name)), read(t, filepath.Join(second, name))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two builds", name)
		}
	}
}

func TestImage(t *testing.T) {
	programs := []string{build(t, "GOARCH=amd64"), build(t, "GOARCH=arm64")}
	index := open(t, filepath.Join(makeImage(t, programs...), "greeter.tar"))
	images := manifest(t, index)
	if len(images) != 1 || images[0].Annotations["io.containerd.image.name"] != "example.com/team/greeter:v1.2.3" {
		t.Fatalf("the layout has the manifests %v, want one with the name for containerd", images)
	}
	index, err := index.ImageIndex(images[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	for i, platform := range []string{"linux/amd64", "linux/arm64"} {
		t.Run(platform, func(t *testing.T) {
			descriptor := manifest(t, index)[i]
			if got := descriptor.Platform.String(); got != platform {
				t.Errorf("image %d is for %s, want %s", i, got, platform)
			}
			image, err := index.Image(descriptor.Digest)
			if err != nil {
				t.Fatal(err)
			}
			testConfig(t, image, platform)
			testFiles(t, image, read(t, programs[i]))
		})
	}
}

func testConfig(t *testing.T, image v1.Image, platform string) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := file.Platform().String(); got != platform {
		t.Errorf("the configuration is for %s, want %s", got, platform)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/hello"}, WorkingDir: "/", Labels: map[string]string{
		"org.opencontainers.image.title":       "greeter",
		"org.opencontainers.image.description": "Says hello",
		"org.opencontainers.image.version":     "v1.2.3",
		"org.opencontainers.image.revision":    "0123abc",
		"org.opencontainers.image.created":     "2023-11-14T22:13:20Z",
		"org.opencontainers.image.source":      "https://github.com/catena-dev/catena/hack/image",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}}
	if diff := cmp.Diff(want, file.Config); diff != "" {
		t.Errorf("wrong configuration (-want +got):\n%s", diff)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Labels, manifest.Annotations); diff != "" {
		t.Errorf("the annotations differ from the labels (-want +got):\n%s", diff)
	}
}

// testFiles compares all files of an image, which belong to root and cannot be changed by the user of the image.
func testFiles(t *testing.T, image v1.Image, program []byte) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	contents := map[string][]byte{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for header, content := range entries(t, content) {
			got = append(got, fmt.Sprintf("%s %s %d:%d %d", header.FileInfo().Mode(), header.Name, header.Uid, header.Gid, header.ModTime.Unix()))
			contents[header.Name] = content
		}
	}
	want := []string{
		"drwxr-xr-x etc/ 0:0 1700000000",
		"drwxr-xr-x etc/ssl/ 0:0 1700000000",
		"drwxr-xr-x etc/ssl/certs/ 0:0 1700000000",
		"-rw-r--r-- etc/ssl/certs/ca-certificates.crt 0:0 1700000000",
		"-rwxr-xr-x hello 0:0 1700000000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong files (-want +got):\n%s", diff)
	}
	if !bytes.Equal(contents["hello"], program) {
		t.Error("hello differs from the program")
	}
	if !bytes.Equal(contents["etc/ssl/certs/ca-certificates.crt"], rootCertificates()) {
		t.Error("the root certificates are missing")
	}
}

// TestRootCertificates: crypto/x509 reads all certificates but those that are not trusted without conditions.
func TestRootCertificates(t *testing.T) {
	want := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if root.Constraint == nil {
			want.AddCert(certificate)
		}
	}
	got := x509.NewCertPool()
	if !got.AppendCertsFromPEM(rootCertificates()) || !got.Equal(want) {
		t.Error("the root certificates differ from those that are trusted without conditions")
	}
}

func TestSBOM(t *testing.T) {
	directory := makeImage(t, build(t, "GOARCH=amd64"), build(t, "GOARCH=arm64"))
	digest := manifest(t, open(t, filepath.Join(directory, "greeter.tar")))[0].Digest
	var bom cdx.BOM
	if err := json.Unmarshal(read(t, filepath.Join(directory, "greeter.cdx.json")), &bom); err != nil {
		t.Fatal(err)
	}
	wantImage := "pkg:oci/greeter@sha256%3A" + digest.Hex + "?repository_url=example.com%2Fteam%2Fgreeter&tag=v1.2.3"
	if got := bom.Metadata.Component.PackageURL; got != wantImage {
		t.Errorf("the SBOM is of %s, want %s", got, wantImage)
	}
	var got []string
	for _, component := range *bom.Components {
		name, version, _ := strings.Cut(component.PackageURL, "@v")
		if version == "" {
			t.Errorf("%s has no version", component.PackageURL)
		}
		_, path, _ := strings.Cut(version, "#")
		got = append(got, strings.TrimRight(fmt.Sprintf("%s %s %s", component.Type, name, path), " "))
	}
	want := []string{
		"application pkg:golang/github.com/catena-dev/catena/hack/image testdata/hello",
		"data pkg:golang/golang.org/x/crypto/x509roots/fallback",
		"library pkg:golang/stdlib",
		"library pkg:golang/github.com/opencontainers/go-digest",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong components (-want +got):\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	program := build(t, "GOARCH=amd64")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no program":          {args: arguments, want: "name a program"},
		"not a program of Go": {args: append(arguments[:4:4], "image_test.go"), want: "image_test.go"},
		"one platform twice":  {args: append(arguments[:4:4], program, program), want: "both are for linux/amd64"},
		"linked to C":         {args: append(arguments[:4:4], build(t, "CGO_ENABLED=1")), want: "CGO_ENABLED=1"},
		"other modules":       {args: append(arguments[:4:4], program, build(t, "GOARCH=386")), want: "different"},
		"no name":             {args: []string{program}, want: "invalid name"},
		"no version":          {args: []string{"-image=example.com/greeter", program}, want: "invalid name"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(tc.args, t.TempDir()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got the error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// open returns the index of an OCI layout in a tar archive.
func open(t *testing.T, archive string) v1.ImageIndex {
	t.Helper()
	directory := t.TempDir()
	for header, content := range entries(t, bytes.NewReader(read(t, archive))) {
		if got := header.ModTime.Unix(); got != 1700000000 {
			t.Errorf("the time of %s in the archive is %d, want that of the commit", header.Name, got)
		}
		file := filepath.Join(directory, header.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// entries yields the entries of a tar archive.
func entries(t *testing.T, archive io.Reader) func(yield func(*tar.Header, []byte) bool) {
	t.Helper()
	return func(yield func(*tar.Header, []byte) bool) {
		r := tar.NewReader(archive)
		for {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(header, content) {
				return
			}
		}
	}
}

func manifest(t *testing.T, index v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return m.Manifests
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
