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

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
	"github.com/catena-dev/catena/store/sqlite"
)

const peerTurns = 64

// peer is a store of turns that a gateway could use instead of Catena.
type peer interface {
	// save stores a turn so that it survives a crash.
	save(ctx context.Context, turn *store.Session) error
	// resolve returns the items of the history of a turn.
	resolve(ctx context.Context, id string) ([]json.RawMessage, error)
	close() error
}

// contender is a peer and its times.
type contender struct {
	name         string
	open         func(ctx context.Context, dir string) (peer, error)
	goal         *goal
	peer         peer
	saves, reads series
}

// peersExperiment saves a conversation of 64 turns of 4 KiB in each store, one turn after another, and resolves it, and then saves further
// turns. Each store is used over its own protocol. The items are decoded with Catena's decoder, which is faster than encoding/json.
func peersExperiment(ctx context.Context, b *bench) (err error) {
	dir, err := os.MkdirTemp("", "catena-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	catena := &contender{open: b.openCatena}
	file := &contender{name: "store/sqlite, in process", goal: atMost(1.5), open: openSQLite}
	plain := &contender{name: "a plain program with the same library", open: openQuery}
	redis := &contender{name: "Redis, a list", goal: atMost(1), open: openRedis}
	postgres := &contender{name: "PostgreSQL, a recursive query", goal: atMost(1), open: openPostgres}
	var all []*contender
	for _, c := range []*contender{catena, file, plain, redis, postgres} {
		c.saves.Name, c.reads.Name = c.name, c.name
		if c.peer, err = c.open(ctx, dir); isMissing(err) {
			b.logf("%s is skipped: %v", c.name, err)
			continue
		}
		if c.peer != nil {
			defer func() { err = errors.Join(err, c.peer.close()) }()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, c)
	}
	turn, turns := conversationTurn(resolveSize), 0
	saveNext := func() error {
		turn.ResponseID, turn.PreviousResponseID = fmt.Sprintf("resp_%d", turns), turn.ResponseID
		turns++
		return interleave(1, each(all, func(c *contender) func() error {
			return timed(&c.saves, func() error { return c.peer.save(ctx, &turn) })
		})...)
	}
	for range peerTurns {
		if err := saveNext(); err != nil {
			return err
		}
	}
	last := turn.ResponseID
	reads := each(all, func(c *contender) func() error {
		return timed(&c.reads, func() error {
			items, err := c.peer.resolve(ctx, last)
			if err == nil && len(items) != 2*peerTurns {
				err = fmt.Errorf("got %d items, want %d", len(items), 2*peerTurns)
			}
			return err
		})
	})
	if err := interleave(3, reads...); err != nil {
		return err
	}
	for _, c := range all {
		c.reads.Samples, c.saves.Samples = nil, nil // so far, these were only a warm-up
	}
	if err := interleave(10*b.rounds, reads...); err != nil {
		return err
	}
	for range 20 * b.rounds {
		if err := saveNext(); err != nil {
			return err
		}
	}
	for _, c := range all {
		if c != catena && c != plain {
			b.compare("resolve 64 turns of 4 KiB directly, read and decoded", "ms", catena.reads, c.reads, c.goal)
			b.compare("save a turn of 4 KiB, one writer", "ms", catena.saves, c.saves, nil)
		}
	}
	b.compare("resolve 64 turns of 4 KiB with store/sqlite", "ms", file.reads, plain.reads, atMost(1.1))
	b.compare("save a turn of 4 KiB with store/sqlite", "ms", file.saves, plain.saves, atMost(1.1))
	return nil
}

// each returns a case for each contender.
func each(all []*contender, of func(c *contender) func() error) []func() error {
	var cases []func() error
	for _, c := range all {
		cases = append(cases, of(c))
	}
	return cases
}

// library is one of Catena's stores.
type library struct{ *store.Store }

func (l library) save(ctx context.Context, turn *store.Session) error {
	return l.Save(ctx, turn, store.SaveOptions{})
}

func (l library) resolve(ctx context.Context, id string) ([]json.RawMessage, error) {
	history, err := l.Resolve(ctx, id, store.ResolveOptions{})
	if err != nil {
		return nil, err
	}
	return history.Items, nil
}

func (l library) close() error { return l.Close() }

func (b *bench) openCatena(ctx context.Context, _ string) (peer, error) {
	s, err := b.openStore(ctx, "peers")
	return library{s}, err
}

// openStore creates a namespace and opens its store as a Pod does.
func (b *bench) openStore(ctx context.Context, namespace string) (*store.Store, error) {
	if err := b.createNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	return b.openInPod(ctx, namespace, "")
}

// openInPod opens the store of a namespace as in a Pod: with the credentials of a service account, and resolving directly.
func (b *bench) openInPod(ctx context.Context, namespace, bucket string) (_ *store.Store, err error) {
	config, err := b.env.PodConfig(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var direct atomic.Bool
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.Contains(address, ".svc:") { // the operator's Service, whose name does not resolve outside a cluster
			address = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.operator.Port))
			direct.Store(true)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	const inCluster = "KUBERNETES_SERVICE_HOST"
	if err := os.Setenv(inCluster, "127.0.0.1"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Unsetenv(inCluster)) }()
	s, err := kube.Open(ctx, kube.Options{Config: config, Namespace: namespace, SnapshotStore: bucket})
	if err != nil {
		return nil, err
	}
	return s, untilReady(ctx, func() error {
		if _, err := s.Resolve(ctx, "resp_none", store.ResolveOptions{}); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("unexpected result: %w", err)
		}
		if !direct.Load() {
			return errors.New("the store does not resolve directly")
		}
		return nil
	})
}

func openSQLite(ctx context.Context, dir string) (peer, error) {
	s, err := sqlite.Open(ctx, filepath.Join(dir, "catena.db"), sqlite.Options{})
	return library{s}, err
}

// The statements of the stores that walk from a turn to its root with a recursive query.
const (
	createTable = `CREATE TABLE turns (id TEXT PRIMARY KEY, previous TEXT NOT NULL, status TEXT NOT NULL, request TEXT NOT NULL, response TEXT NOT NULL)`
	insertTurn  = `INSERT INTO turns VALUES ($1, $2, $3, $4, $5)`
	selectChain = `WITH RECURSIVE chain AS (
		SELECT id, previous, status, request, response, 1 AS depth FROM turns WHERE id = $1
		UNION ALL
		SELECT t.id, t.previous, t.status, t.request, t.response, depth + 1 FROM turns t JOIN chain c ON t.id = c.previous WHERE depth < 1000
	) SELECT status, request, response FROM chain ORDER BY depth DESC`
)

// rows are the result of selectChain.
type rows interface {
	Next() bool
	Scan(columns ...any) error
	Err() error
}

func readChain(rows rows) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for rows.Next() {
		var status, request, response string
		if err := rows.Scan(&status, &request, &response); err != nil {
			return nil, err
		}
		if status != store.StatusCompleted {
			return nil, fmt.Errorf("a turn is %s", status)
		}
		items, err := decodeItems([]byte(request), []byte(response))
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, rows.Err()
}

func decodeItems(request, response []byte) ([]json.RawMessage, error) {
	items, err := chain.Flatten(request, response)
	if err != nil {
		return nil, err
	}
	list := make([]json.RawMessage, items.Len())
	for i := range list {
		list[i] = items.Slice(i, i+1)
	}
	return list, nil
}

// query is a plain program with the library that store/sqlite uses, and with the same durability.
type query struct{ db *sql.DB }

func openQuery(ctx context.Context, dir string) (peer, error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "plain.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, createTable)
	return query{db}, err
}

func (q query) save(ctx context.Context, turn *store.Session) error {
	_, err := q.db.ExecContext(ctx, insertTurn, turn.ResponseID, turn.PreviousResponseID, turn.Status, string(turn.Request), string(turn.Response))
	return err
}

func (q query) resolve(ctx context.Context, id string) ([]json.RawMessage, error) {
	rows, err := q.db.QueryContext(ctx, selectChain, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	return readChain(rows)
}

func (q query) close() error { return q.db.Close() }

// postgres is a PostgreSQL server.
type postgres struct {
	connection *pgx.Conn
	stop       func() error
}

func (p *postgres) save(ctx context.Context, turn *store.Session) error {
	_, err := p.connection.Exec(ctx, insertTurn, turn.ResponseID, turn.PreviousResponseID, turn.Status, string(turn.Request), string(turn.Response))
	return err
}

func (p *postgres) resolve(ctx context.Context, id string) ([]json.RawMessage, error) {
	rows, err := p.connection.Query(ctx, selectChain, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return readChain(rows)
}

func (p *postgres) close() error {
	if p.connection != nil {
		_ = p.connection.Close(context.Background()) // the server waits for it
	}
	return p.stop()
}

// redisList keeps each conversation as a list, in a Redis server.
type redisList struct {
	client *redis.Client
	stop   func() error
}

// conversationKey is the only conversation of the experiment.
const conversationKey = "conversation"

func (r redisList) save(ctx context.Context, turn *store.Session) error {
	return r.client.RPush(ctx, conversationKey, []byte(turn.Request), []byte(turn.Response)).Err()
}

func (r redisList) resolve(ctx context.Context, _ string) ([]json.RawMessage, error) {
	bodies, err := r.client.LRange(ctx, conversationKey, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	var all []json.RawMessage
	for i := 0; i+1 < len(bodies); i += 2 {
		items, err := decodeItems([]byte(bodies[i]), []byte(bodies[i+1]))
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, nil
}

func (r redisList) close() error { return r.stop() }
