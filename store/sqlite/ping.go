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
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/catena-dev/catena/store/driver"
)

var _ driver.Pinger = (*turns)(nil)

// Ping implements driver.Pinger.
func (s *turns) Ping(ctx context.Context, namespace string) error {
	if err := s.checkFile(); err != nil {
		return err
	}
	err := s.read(ctx, namespace, func(tx *sql.Tx) error {
		if _, err := schemaVersion(ctx, tx, s.version); err != nil {
			return err
		}
		var found bool
		return tx.QueryRowContext(ctx, selectAny, namespace).Scan(&found)
	})
	return toError(ctx, err)
}

// selectAny reads at most one entry of an index.
const selectAny = `SELECT EXISTS (SELECT 1 FROM turns WHERE namespace = ?)`

// checkFile returns an error if the path is no longer the file that was opened. SQLite would go on to use that, even without a name.
func (db *database) checkFile() error {
	info, err := os.Stat(db.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, db.file):
		return fmt.Errorf("the file %q was removed or replaced since it was opened: restart the program", db.path)
	case err != nil:
		return err
	}
	return nil
}
