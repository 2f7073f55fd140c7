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

package testutil

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// PeakMemory returns the peak resident memory of a process, in bytes, since its start or the last call of ResetPeakMemory.
// It skips the test if that is unknown, as it is on other systems than Linux.
func PeakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kilobytes); err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// ResetPeakMemory makes PeakMemory restart from the memory that is resident now.
func ResetPeakMemory(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Skip(err)
	}
}
