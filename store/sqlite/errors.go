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

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/catena-dev/catena/store/driver"
)

// toError converts an error: to the context's error once the context is done, and otherwise to a *driver.Error if one of its
// codes applies.
func toError(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e
	}
	if newer, ok := errors.AsType[*newerSchemaError](err); ok {
		return &driver.Error{Code: driver.CodeUnsupported, Message: "a newer program has migrated the database", Err: newer}
	}
	switch {
	case err != nil && ctx.Err() != nil: // SQLite's own error depends on the point of interruption
		return ctx.Err()
	case isBusy(err):
		return &driver.Error{Code: driver.CodeUnreachable, Retryable: true, Err: err}
	case hasCode(err, sqlite3.SQLITE_CORRUPT), hasCode(err, sqlite3.SQLITE_NOTADB):
		return &driver.Error{Code: driver.CodeUnreadable, Err: err}
	case hasCode(err, sqlite3.SQLITE_TOOBIG):
		return &driver.Error{Code: driver.CodeTooLarge, Err: err}
	}
	return err
}
