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

// Package httpheader limits the number of values in the headers of requests: each takes some 150 bytes besides its own. Limit does so before a
// header has arrived, but only in programs built with Go 1.27 or later, so servers also use Exceeds.
package httpheader

import "net/http"

// Exceeds reports whether a header has more than a number of values.
func Exceeds(header http.Header, most int) bool {
	values := 0
	for _, all := range header {
		values += len(all)
	}
	return values > most
}
