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

func TestOfContainer(t *testing.T) {
	tests := map[string]struct {
		value   string
		want    int64
		wantErr string
	}{
		"none":      {want: math.MaxInt64},
		"a number":  {value: "101", want: 101},
		"too small": {value: "100", wantErr: `MEMORY_LIMIT is "100": must be a number of bytes above 100`},
		"a unit":    {value: "1Gi", wantErr: `MEMORY_LIMIT is "1Gi": must be a number of bytes above 100`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MEMORY_LIMIT", tc.value)
			got, err := memorylimit.OfContainer(100)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != tc.want || message != tc.wantErr {
				t.Errorf("got %d and the error %q, want %d and %q", got, message, tc.want, tc.wantErr)
			}
		})
	}
}

func TestSet(t *testing.T) {
	const unset = 7 << 30
	tests := map[string]struct {
		goMemLimit  string
		limit, want int64
	}{
		"a limit":    {limit: 1000, want: 900},
		"no limit":   {limit: math.MaxInt64, want: unset},
		"GOMEMLIMIT": {goMemLimit: "7GiB", limit: 1000, want: unset},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := debug.SetMemoryLimit(unset)
			t.Cleanup(func() { debug.SetMemoryLimit(before) })
			t.Setenv("GOMEMLIMIT", tc.goMemLimit)
			memorylimit.Set(tc.limit, 100)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
		})
	}
}
