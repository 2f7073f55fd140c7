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

// Package elapsed measures how long ago something was. The time for which the machine was suspended counts.
package elapsed

import "time"

// Since returns the time since start: the longer one of Go's monotonic clock, which stops while the machine is suspended, and the wall clock,
// which does not stop but can be set back. CLOCK_BOOTTIME of Linux has neither flaw, but also stops while a hypervisor has paused the machine.
func Since(start time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(start), now.Round(0).Sub(start.Round(0)))
}
