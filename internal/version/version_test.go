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

package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestString(t *testing.T) {
	if got := String(); !strings.HasPrefix(got, "devel go1.") {
		t.Errorf("String() = %q, want devel and the version of Go, because tests have no version", got)
	}
	version, commit = "v1.2.3", "0123abc"
	defer func() { version, commit = "", "" }()
	if got := String(); !strings.HasPrefix(got, "v1.2.3 (commit 0123abc) go1.") {
		t.Errorf("String() = %q, want the version and the commit set by the linker", got)
	}
}

func TestFromBuildInfo(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abc"}}
	for name, tc := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"no build information":     {info: nil, want: ""},
		"installed at a version":   {info: &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}, Settings: revision}, want: "v0.2.0"},
		"built in a checkout":      {info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: revision}, want: "0123abc"},
		"built without a checkout": {info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fromBuildInfo(tc.info); got != tc.want {
				t.Errorf("fromBuildInfo() = %q, want %q", got, tc.want)
			}
		})
	}
}
