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

package sqlite_test

import (
	"database/sql"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/sqlite"
)

// migration is a schema migration by a newer program.
const migration = `BEGIN IMMEDIATE; ALTER TABLE turns ADD COLUMN later TEXT; PRAGMA user_version = 1000000; COMMIT`

// TestMigratedWhileOpen: a program with an open database neither reads nor writes it after a newer program has migrated it.
func TestMigratedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	save(t, s, testturn.Make("resp_1", ""))
	save(t, s, testturn.Make("resp_2", "resp_1"))
	stored, err := s.Get(t.Context(), "resp_2")
	if err != nil {
		t.Fatal(err)
	}
	execute(migration)(t, path)

	overwritten := *stored
	overwritten.Status = "failed"
	for name, call := range map[string]func() error{
		"save":      func() error { return s.Save(t.Context(), testturn.Make("resp_3", "resp_2"), store.SaveOptions{}) },
		"overwrite": func() error { return s.Save(t.Context(), &overwritten, store.SaveOptions{Overwrite: true}) },
		"delete":    func() error { return s.Delete(t.Context(), "resp_2", store.DeleteOptions{}) },
		"cascade":   func() error { return s.Delete(t.Context(), "resp_1", store.DeleteOptions{Cascade: true}) },
		"get":       func() error { _, err := s.Get(t.Context(), "resp_2"); return err },
		"list":      func() error { _, err := s.List(t.Context(), "conv_1", store.ListOptions{}); return err },
		"resolve":   func() error { _, err := s.Resolve(t.Context(), "resp_2", store.ResolveOptions{}); return err },
	} {
		err := call()
		if !errors.Is(err, store.ErrUnsupported) || store.IsRetryable(err) || !strings.Contains(err.Error(), "use a newer program") {
			t.Errorf("%s: got %v, want an error that requires a newer program", name, err)
		}
	}
	if diff := cmp.Diff([]string{"resp_1 completed", "resp_2 completed"}, rows(t, path)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// TestMigratedWhileSaving: a process that saves continuously fails after a newer program has migrated the database.
func TestMigratedWhileSaving(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	cmd, lines := startSaver(t, path, math.MaxInt)
	if !lines.Scan() {
		t.Fatalf("the saver did not save a turn: %v", lines.Err())
	}
	// The saver may win every race for the lock, but only until the pipe is full: a few thousand turns.
	db := openSQL(t, path)
	if _, err := db.ExecContext(t.Context(), `PRAGMA busy_timeout = 60000; `+migration); err != nil {
		t.Fatal(err)
	}
	migrated := rows(t, path)
	for lines.Scan() {
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the saver ended without an error")
	}
	if diff := cmp.Diff(migrated, rows(t, path)); diff != "" {
		t.Errorf("written after the migration (-want +got):\n%s", diff)
	}
}

// TestReplacedFile: a database that was replaced by an older one is not written either.
func TestReplacedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	execute(`PRAGMA user_version = 0`)(t, path)
	err := s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{})
	if err == nil || !strings.Contains(err.Error(), "replaced by another file") {
		t.Errorf("got %v, want an error about the version", err)
	}
}

// TestStoredVersions: databases stored by earlier builds remain readable. testdata has one for each schema version. They are
// never written again: add another for a new version.
func TestStoredVersions(t *testing.T) {
	for version, name := range []string{"version1.db", "version2.db", "version3.db", "version4.db", "version5.db"} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "turns.db")
			write(t, path, string(content))
			var stored int
			if err := openSQL(t, path).QueryRowContext(t.Context(), `PRAGMA user_version`).Scan(&stored); err != nil || stored != version+1 {
				t.Fatalf("got schema version %d and error %v", stored, err)
			}
			s := open(t, path)
			got, err := s.Get(t.Context(), "resp_2")
			if err != nil {
				t.Fatal(err)
			}
			got.Version = ""
			if diff := cmp.Diff(storedTurn(), got); diff != "" {
				t.Errorf("turn (-want +got):\n%s", diff)
			}
			history, err := s.Resolve(t.Context(), "resp_2", store.ResolveOptions{})
			if err != nil || len(history.Turns) != 2 || len(history.Items) != 4 {
				t.Errorf("got %+v and error %v, want the history of two turns", history, err)
			}
			list, err := s.List(t.Context(), "conv_1", store.ListOptions{})
			if err != nil || len(list.Turns) != 1 || list.Turns[0].ResponseID != "resp_2" || !list.Turns[0].CreatedAt.Equal(storedTurn().CreatedAt) {
				t.Errorf("got %+v and error %v, want the turn of the conversation", list, err)
			}
			save(t, s, testturn.Make("resp_3", "resp_2"))
			checkStoredConversation(t, path, stored)
		})
	}
}

// checkStoredConversation checks the conversation conv_1 of a database in testdata. Those of a schema before version 3 have none, and one
// can be created.
func checkStoredConversation(t *testing.T, path string, version int) {
	t.Helper()
	s := openConversations(t, path)
	if version < 3 {
		if _, err := s.GetConversation(t.Context(), "default", "conv_1"); !errors.Is(err, driver.ErrConversationNotFound) {
			t.Errorf("got %v, want that the conversation does not exist", err)
		}
		c := conversation("conv_1")
		create(t, s, c)
		check(t, s, c)
		return
	}
	got, err := s.GetConversation(t.Context(), "default", "conv_1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(storedConversation(), got); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	checkSummaries(t, s, "conv_1", storedSummary())
	checkStoredList(t, s)
}

// checkStoredList checks that the storedConversation is listed. Before version 5, a change was not recorded.
func checkStoredList(t *testing.T, s driver.Conversations) {
	t.Helper()
	for _, sort := range []string{driver.SortCreated, driver.SortUpdated, driver.SortActivity} {
		options := driver.ConversationListOptions{Sort: sort, UserID: storedConversation().UserID}.WithDefaults()
		list, err := s.(driver.ConversationLister).ListConversations(t.Context(), "default", options)
		at := storedConversation().CreatedAt
		if err != nil || len(list.Conversations) != 1 || list.Conversations[0].UpdatedAt != at || list.Conversations[0].LastActivityAt != at {
			t.Errorf("got %+v and error %v, want the conversation", list, err)
		}
	}
}

// storedTurn is the second turn of each database in testdata.
func storedTurn() *store.Session {
	turn := testturn.Make("resp_2", "resp_1")
	turn.ConversationID, turn.Immutable = "conv_1", true
	turn.CreatedAt, turn.CompletedAt = time.Unix(1_700_000_000, 0).UTC(), time.Unix(1_700_000_009, 0).UTC()
	turn.Metadata = []byte(`{ "k":"ü", "n":1.0 }`)
	return turn
}

// storedConversation is the conversation of each database in testdata since version 3.
func storedConversation() *driver.Conversation {
	c := conversation("conv_1")
	c.CreatedAt = time.Unix(1_700_000_000, 0).UTC()
	return c
}

// storedSummary is the summary of the storedConversation.
func storedSummary() driver.Summary {
	return driver.Summary{StartTurn: 0, EndTurn: 2, Content: "Zusammenfassung: ü", TokenCount: 7, CreatedAt: time.Unix(1_700_000_009, 0).UTC()}
}

// TestPagesUseTheIndex: a page is found in the index, so it costs what it has and not what its conversation or its namespace has.
func TestPagesUseTheIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	_ = open(t, path)
	for query, comparison := range map[string]string{sqlite.SelectPage: ">", sqlite.SelectPageDescending: "<"} {
		var id, parent, unused int
		var plan string
		row := openSQL(t, path).QueryRowContext(t.Context(), `EXPLAIN QUERY PLAN `+query, "ns", "conv_1", 0, "resp_1", 10)
		if err := row.Scan(&id, &parent, &unused, &plan); err != nil {
			t.Fatal(err)
		}
		want := "SEARCH turns USING INDEX turns_by_conversation (namespace=? AND conversation_id=? AND (listed_at,response_id)" + comparison + "(?,?))"
		if plan != want {
			t.Errorf("the plan is %s, want %s", plan, want)
		}
	}
}

// rows returns the response IDs and statuses in a database.
func rows(t *testing.T, path string) []string {
	t.Helper()
	found, err := openSQL(t, path).QueryContext(t.Context(), `SELECT response_id || ' ' || status FROM turns ORDER BY response_id`)
	if err != nil {
		t.Fatal(err)
	}
	defer func(rows *sql.Rows) { _ = rows.Close() }(found)
	var all []string
	for found.Next() {
		var row string
		if err := found.Scan(&row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
