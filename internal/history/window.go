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

package history

// Window is the part of a list of entries, oldest first, on one page: the half-open range [From, To).
type Window struct {
	From, To int
	// More reports whether further pages follow.
	More bool
}

// NewWindow returns the window of a page with at most limit of count entries. The page follows the entry numbered after,
// in the order of the pages; -1 means the first page.
func NewWindow(count, limit, after int, descending bool) Window {
	from, to := after+1, count
	if descending {
		from = 0
		if after >= 0 {
			to = after
		}
	}
	size := min(limit, to-from)
	more := size < to-from
	if descending {
		return Window{to - size, to, more}
	}
	return Window{from, from + size, more}
}
