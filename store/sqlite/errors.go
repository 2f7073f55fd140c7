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

package sqlite

import (
	"context"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/catena-dev/catena/store"
)

// failure returns the error of an operation on a turn: that of the context once it is done, and a *store.Error where one
// of its codes applies.
func failure(ctx context.Context, operation, responseID string, err error) error {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e
	}
	message := fmt.Sprintf("unable to %s response %q", operation, responseID)
	e := &store.Error{ResponseID: responseID, Message: message, Err: err}
	switch {
	case ctx.Err() != nil: // what SQLite says of it depends on where it was
		return fmt.Errorf("%s: %w", message, ctx.Err())
	case isBusy(err):
		e.Code, e.Retryable = store.CodeUnreachable, true
	case hasCode(err, sqlite3.SQLITE_CORRUPT), hasCode(err, sqlite3.SQLITE_NOTADB):
		e.Code = store.CodeUnreadable
	case hasCode(err, sqlite3.SQLITE_TOOBIG):
		e.Code = store.CodeTooLarge
	default:
		return fmt.Errorf("%s: %w", message, err)
	}
	return e
}
