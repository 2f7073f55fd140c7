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
	"debug/buildinfo"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// writeSBOM writes the contents of an image in CycloneDX's format: the program, the modules that are compiled into it, Go's
// standard library, and the root certificates.
func writeSBOM(w io.Writer, r *release, index v1.ImageIndex, programs []*program) error {
	image, err := imageComponent(r, index)
	if err != nil {
		return err
	}
	certificates, err := certificatesComponent()
	if err != nil {
		return err
	}
	application := applicationComponent(r, programs[0].info)
	libraries := modules(programs[0].info)

	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &image}
	bom.Components = &[]cdx.Component{application, certificates}
	bom.Dependencies = &[]cdx.Dependency{
		{Ref: image.BOMRef, Dependencies: &[]string{application.BOMRef, certificates.BOMRef}},
		{Ref: application.BOMRef, Dependencies: &[]string{}},
	}
	for _, m := range libraries {
		library := moduleComponent(cdx.ComponentTypeLibrary, m)
		*bom.Components = append(*bom.Components, library)
		direct := (*bom.Dependencies)[1].Dependencies
		*direct = append(*direct, library.BOMRef)
	}
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	encoder.SetEscapeHTML(false)
	return encoder.EncodeVersion(bom, cdx.SpecVersion1_6)
}

// module is a module, or its replacement, at a version.
type module struct{ path, version string }

// modules returns the modules that are compiled into a program, with the standard library as vulnerability databases name it.
func modules(info *buildinfo.BuildInfo) []module {
	all := []module{{path: "stdlib", version: strings.Replace(info.GoVersion, "go", "v", 1)}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, module{path: m.Path, version: m.Version})
	}
	return all
}

// imageComponent identifies the image by the digest of its index, which a registry keeps.
func imageComponent(r *release, index v1.ImageIndex) (cdx.Component, error) {
	digest, err := index.Digest()
	if err != nil {
		return cdx.Component{}, err
	}
	purl := fmt.Sprintf("pkg:oci/%s@%s?repository_url=%s&tag=%s", r.name(), url.QueryEscape(digest.String()),
		url.QueryEscape(r.tag.Repository.Name()), url.QueryEscape(r.tag.TagStr()))
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeContainer, Name: r.tag.Repository.Name(), Version: r.tag.TagStr(),
		Description: r.description, PackageURL: purl}, nil
}

func applicationComponent(r *release, info *buildinfo.BuildInfo) cdx.Component {
	c := moduleComponent(cdx.ComponentTypeApplication, module{path: info.Main.Path, version: r.tag.TagStr()})
	c.PackageURL += "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/")
	c.BOMRef = c.PackageURL
	c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: licenses}}}
	return c
}

// certificatesComponent is the module that this program takes the root certificates from.
func certificatesComponent() (cdx.Component, error) {
	info, _ := debug.ReadBuildInfo()
	for _, m := range modules(info) {
		if m.path == certificatesModule {
			return moduleComponent(cdx.ComponentTypeData, m), nil
		}
	}
	return cdx.Component{}, fmt.Errorf("this program was built without %s", certificatesModule)
}

func moduleComponent(kind cdx.ComponentType, m module) cdx.Component {
	purl := "pkg:golang/" + m.path + "@" + url.QueryEscape(m.version)
	return cdx.Component{BOMRef: purl, Type: kind, Name: m.path, Version: m.version, PackageURL: purl}
}
