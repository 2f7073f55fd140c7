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

// Package memorylimit limits the memory of a program.
package memorylimit

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
)

// variable is set to the memory limit of the container, in bytes.
const variable = "MEMORY_LIMIT"

// Set makes the garbage collector run more often before the process exceeds the memory limit of its container, in MEMORY_LIMIT, or, without
// one, the memory that it needs at most, in bytes; math.MaxInt64 is no limit. Of either, Go's runtime does not manage the unmanaged bytes,
// such as the mapped binary. GOMEMLIMIT overrides it.
//
// Set returns the memory limit of the container, or math.MaxInt64, for the caller to say if it needs more. It returns an error if the
// variable is not a number above unmanaged.
func Set(needed, unmanaged int64) (container int64, err error) {
	container = math.MaxInt64
	if value := os.Getenv(variable); value != "" {
		if container, err = strconv.ParseInt(value, 10, 64); err != nil || container <= unmanaged {
			return 0, fmt.Errorf("%s is %q: must be a number of bytes above %d", variable, value, unmanaged)
		}
		needed = container
	}
	if os.Getenv("GOMEMLIMIT") == "" && needed < math.MaxInt64 {
		debug.SetMemoryLimit(needed - unmanaged)
	}
	return container, nil
}
