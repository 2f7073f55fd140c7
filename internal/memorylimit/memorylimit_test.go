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

package memorylimit_test

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/catena-dev/catena/internal/memorylimit"
)

func TestSet(t *testing.T) {
	const unset = 7 << 30
	tests := map[string]struct {
		container, goMemLimit string
		needed                int64
		want, wantContainer   int64
		wantErr               string
	}{
		"no container":          {needed: 1000, want: 900, wantContainer: math.MaxInt64},
		"nothing":               {needed: math.MaxInt64, want: unset, wantContainer: math.MaxInt64},
		"a larger container":    {container: "5000", needed: 1000, want: 4900, wantContainer: 5000},
		"a smaller container":   {container: "500", needed: 1000, want: 400, wantContainer: 500},
		"no limit by flags":     {container: "500", needed: math.MaxInt64, want: 400, wantContainer: 500},
		"GOMEMLIMIT":            {container: "500", goMemLimit: "7GiB", needed: 1000, want: unset, wantContainer: 500},
		"too small":             {container: "100", needed: 1000, want: unset, wantErr: `MEMORY_LIMIT is "100": must be a number of bytes above 100`},
		"not a number of bytes": {container: "1Gi", needed: 1000, want: unset, wantErr: `MEMORY_LIMIT is "1Gi": must be a number of bytes above 100`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := debug.SetMemoryLimit(unset)
			t.Cleanup(func() { debug.SetMemoryLimit(before) })
			t.Setenv("MEMORY_LIMIT", tc.container)
			t.Setenv("GOMEMLIMIT", tc.goMemLimit)
			container, err := memorylimit.Set(tc.needed, 100)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != tc.wantErr || container != tc.wantContainer {
				t.Errorf("got %d and the error %q, want %d and %q", container, message, tc.wantContainer, tc.wantErr)
			}
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
		})
	}
}
