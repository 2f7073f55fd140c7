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

// OfContainer returns the memory limit of the container in bytes, which MEMORY_LIMIT has, or math.MaxInt64 without one. It returns an error if
// the variable is not a number above unmanaged.
func OfContainer(unmanaged int64) (int64, error) {
	value := os.Getenv(variable)
	if value == "" {
		return math.MaxInt64, nil
	}
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit <= unmanaged {
		return 0, fmt.Errorf("%s is %q: must be a number of bytes above %d", variable, value, unmanaged)
	}
	return limit, nil
}

// Set makes the garbage collector run more often before the process exceeds a limit in bytes, unless it is math.MaxInt64 or GOMEMLIMIT sets
// another. Go's runtime does not manage the unmanaged bytes of it, such as the mapped binary.
func Set(limit, unmanaged int64) {
	if os.Getenv("GOMEMLIMIT") == "" && limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit - unmanaged)
	}
}
