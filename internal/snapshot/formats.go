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

package snapshot

import (
	"errors"
	"fmt"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// ErrNewer indicates a format that only a newer build can read. It is also an ErrUnreadable, although nothing is damaged.
var ErrNewer = errors.New("format is newer")

// newerError is an ErrNewer.
type newerError struct {
	what, reader      string
	format, supported int64
}

// Error names both versions and what must be upgraded. It does not quote bodies.
func (e *newerError) Error() string {
	return fmt.Sprintf("its %s in format %d, and %s reads formats up to %d: upgrade %[3]s", e.what, e.format, e.reader, e.supported)
}

// Is reports whether target is ErrNewer or ErrUnreadable.
func (e *newerError) Is(target error) bool { return target == ErrNewer || target == ErrUnreadable }

// CheckFormats returns ErrNewer if the bodies of a turn or its snapshot have a format that this build does not support. The
// reference is nil for a turn without a snapshot. The error message is a clause about the turn, and names the given program
// as the reader.
func CheckFormats(reader string, bodies int64, ref *v1alpha1.SnapshotReference) error {
	switch {
	case bodies > v1alpha1.MaxFormat:
		return &newerError{"bodies are", reader, bodies, v1alpha1.MaxFormat}
	case ref != nil && ref.Format > v1alpha1.MaxSnapshotFormat:
		return &newerError{"snapshot is", reader, int64(ref.Format), v1alpha1.MaxSnapshotFormat}
	}
	return nil
}
