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
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program is an executable file that the go command built.
type program struct {
	file     string
	info     *buildinfo.BuildInfo
	platform v1.Platform
}

// name is the name of the file.
func (p *program) name() string { return filepath.Base(p.file) }

// readPrograms reads programs, which must be the same one for different platforms.
func readPrograms(files []string) ([]*program, error) {
	if len(files) == 0 {
		return nil, errors.New("name a program for each platform")
	}
	programs := make([]*program, len(files))
	for i, file := range files {
		p, err := readProgram(file)
		if err != nil {
			return nil, err
		}
		for _, other := range programs[:i] {
			if err := checkSame(other, p); err != nil {
				return nil, fmt.Errorf("%s and %s: %w", other.file, file, err)
			}
		}
		programs[i] = p
	}
	return programs, nil
}

func readProgram(file string) (*program, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	system, cgo := settings["GOOS"], settings["CGO_ENABLED"]
	if system != "linux" || cgo != "0" {
		return nil, fmt.Errorf("%s was built with GOOS=%s and CGO_ENABLED=%s: an image needs linux and 0", file, system, cgo)
	}
	return &program{file: file, info: info, platform: v1.Platform{OS: system, Architecture: settings["GOARCH"]}}, nil
}

// checkSame returns an error if two programs cannot share an image: one SBOM describes the programs of all platforms.
func checkSame(a, b *program) error {
	same := func(a, b *buildinfo.BuildInfo) bool {
		return a.Path == b.Path && a.GoVersion == b.GoVersion && slices.Equal(modules(a), modules(b))
	}
	switch {
	case a.platform.Equals(b.platform):
		return fmt.Errorf("both are for %s", a.platform)
	case a.name() != b.name():
		return errors.New("the programs of an image must have one name")
	case !same(a.info, b.info):
		return errors.New("they were built from different packages, or from different versions of modules or of Go")
	}
	return nil
}
