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

// Package pagecursor defines the form of the cursors of pages: a version and opaque bytes, encoded as text for a URL.
package pagecursor

import (
	"encoding/base64"
	"fmt"
)

const (
	// Version is the first byte of a cursor, before it is encoded.
	Version = 1
	// maxVersion is the largest first byte that later versions of cursors may have. Any other input with a larger first byte is
	// not a cursor.
	maxVersion = 15
)

var encoding = base64.RawURLEncoding.Strict()

// Error indicates a cursor that cannot be used. It is the reason, as a clause about "it".
type Error string

// Error returns the reason.
func (e Error) Error() string { return string(e) }

// ErrInvalid is the error for a value that is not a cursor of any version.
const ErrInvalid = Error("it is not a cursor of this API")

// Encode returns a cursor of this version with the given bytes.
func Encode(b []byte) string {
	return encoding.EncodeToString(append([]byte{Version}, b...))
}

// Decode returns the bytes of a cursor of this version, and otherwise an Error.
func Decode(s string) ([]byte, error) {
	b, err := encoding.DecodeString(s)
	switch {
	case err != nil || len(b) == 0:
		return nil, ErrInvalid
	case b[0] > Version && b[0] <= maxVersion:
		return nil, Error(fmt.Sprintf(
			"it has version %d, and this server reads cursors up to version %d: upgrade this server, or start with the first page",
			b[0], Version))
	case b[0] != Version:
		return nil, ErrInvalid
	}
	return b[1:], nil
}
