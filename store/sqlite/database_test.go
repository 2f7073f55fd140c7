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
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestNamespacesShareConnections: however many transactions one namespace has, another one can read.
func TestNamespacesShareConnections(t *testing.T) {
	d, err := openDriver(t.Context(), filepath.Join(t.TempDir(), "turns.db"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	db := d.(*turns).database
	all := db.reader.Stats().MaxOpenConnections
	started, release := make(chan struct{}, 2*all), make(chan struct{})
	var group errgroup.Group
	for range 2 * all {
		group.Go(func() error {
			return db.read(t.Context(), "a", func(*sql.Tx) error {
				started <- struct{}{}
				<-release
				return nil
			})
		})
	}
	for range all / 2 {
		<-started
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := db.read(ctx, "b", func(*sql.Tx) error { return nil }); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if len(started) > 0 {
		t.Errorf("a namespace alone has %d connections more than half", len(started))
	}
	close(release)
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
