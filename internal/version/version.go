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

// Package version reports which version of Catena a program was built from.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker: -ldflags="-X github.com/catena-dev/catena/internal/version.version=v0.1.0".
var version, commit string

// String returns the version and the commit of Catena, the version of Go and the platform, such as
// "v0.1.0 (commit 0123456789abcdef0123456789abcdef01234567) go1.26.8 linux/amd64".
// The version is the one that the linker set, otherwise that of the module or the commit in the build information,
// otherwise "devel". The commit is missing unless the linker set it.
func String() string {
	info, _ := debug.ReadBuildInfo()
	text := cmp.Or(version, fromBuildInfo(info), "devel")
	if commit != "" {
		text += " (commit " + commit + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// fromBuildInfo returns the version that `go install` or the version control system recorded, "" if neither did.
func fromBuildInfo(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}
