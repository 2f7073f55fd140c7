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

package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// inFlightBytes is how many bytes of lines are imported at once, unless a single one is longer. Their memory is a few times as much. More
// would not be faster: only one chunk of a namespace is written at once.
const inFlightBytes = 16 << 20

// ImportOptions are the options of Import.
type ImportOptions struct {
	// Namespace is the namespace to import into, which must exist. Empty means the exported one.
	Namespace string
	// DryRun makes the API server check each session that would be created, and creates nothing.
	DryRun bool
}

// Imported is the result of an import, in numbers of sessions.
type Imported struct {
	Header    Header
	Namespace string
	// Created are new. Equal ones existed with the same spec and at least the same labels and annotations. Different ones existed too,
	// and were left as they are. Refused ones were not accepted by the API server. LeftOut are those whose parent, or a parent of it, is
	// different or was refused: they would continue another history.
	Created, Equal, Different, Refused, LeftOut int
	// WithoutBodies are those of the created and equal ones whose snapshot could not be read when they were exported.
	WithoutBodies int
	// Each created and equal one is one of these. Verified ones have a whole history, which is stored as it was exported. In a dry run,
	// nothing is verified. Broken ones had no whole history when they were exported, because a turn or its bodies were missing, or because
	// of a cycle, and are stored like that. Of Wrong ones, a turn of the history is not stored as it was exported.
	Verified, Broken, Wrong int
}

// Complete reports whether everything in the file is now stored as it was exported, or would be.
func (i *Imported) Complete() bool { return i.Different+i.Refused+i.LeftOut+i.Wrong == 0 }

// outcome is what an import has done with a session.
type outcome uint8

const (
	pending outcome = iota
	created
	equal
	different
	refused
	leftOut
)

// stored reports whether the session of the file is in the cluster, or would be.
func (o outcome) stored() bool { return o == created || o == equal }

// entry is a session that was read from the file.
type entry struct {
	name    string
	parent  int
	content digest
	// previous is the response ID of the parent of an orphan, or of one on a cycle.
	previous                       string
	cycle, misnamed, withoutBodies bool

	outcome outcome
	// same is set if the turn is stored as it was exported, whatever precedes it.
	same    bool
	history history
}

func newEntry(s *Session) *entry {
	e := &entry{
		name: s.Name, parent: s.parent, content: s.turn.content,
		cycle: s.Cycle, misnamed: s.misnamed(), withoutBodies: s.withoutBodies(),
	}
	if s.parent < 0 && !e.misnamed {
		e.previous = s.turn.previous
	}
	return e
}

// orphan reports whether the parent of the session was not exported.
func (e *entry) orphan() bool { return e.previous != "" && !e.cycle }

// alone returns the history that the session would have if that of its parent were whole.
func (e *entry) alone() history {
	switch {
	case !e.same:
		return wrong
	case e.withoutBodies || e.misnamed || e.previous != "":
		return broken
	}
	return whole
}

// Import creates the sessions of a file that do not exist. It overwrites and deletes none, so it can be repeated: after an interruption, it
// continues. It needs the rights to get and create responsesessions, and to get, create and delete snapshotchunks. If in can seek, the
// whole file is checked first. Otherwise, what comes before a damaged line is imported, and the error is ErrDamaged.
//
// A snapshot is written before its session, within the time that the sweeper of the operator grants to saves, and then confirmed as
// after a slow save.
func (c *Cluster) Import(ctx context.Context, in io.Reader, options ImportOptions) (*Imported, error) {
	sessions, err := c.check(ctx, in)
	if err != nil {
		return nil, err
	}
	reader, err := NewReader(in, c.MaxTurnBytes)
	if err != nil {
		return nil, err
	}
	i := &importer{Cluster: c, namespace: options.Namespace, dryRun: options.DryRun, reader: reader, memory: semaphore.NewWeighted(inFlightBytes)}
	if i.namespace == "" {
		i.namespace = reader.Header.Namespace
	}
	if err := i.createAll(ctx, sessions); err != nil {
		return nil, fmt.Errorf("the import is incomplete, and continues when it is repeated: %w", err)
	}
	if err := i.verify(ctx); err != nil {
		return nil, fmt.Errorf("unable to verify what was imported: %w", err)
	}
	return i.result(), nil
}

// check reads a file that can seek to its end, returns to where it began, and returns the number of sessions. It returns -1 for others.
func (c *Cluster) check(ctx context.Context, in io.Reader) (sessions int, err error) {
	seeker, ok := in.(io.Seeker)
	if !ok {
		return -1, nil
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return -1, nil // a pipe
	}
	reader, err := NewReader(in, c.MaxTurnBytes)
	if err != nil {
		return 0, err
	}
	step, end := c.Progress("check", -1)
	defer end()
	for ctx.Err() == nil {
		if _, err := reader.Next(); errors.Is(err, io.EOF) {
			_, err = seeker.Seek(start, io.SeekStart)
			return len(reader.chains.digests), err
		} else if err != nil {
			return 0, err
		}
		step()
	}
	return 0, ctx.Err()
}

// importer is the state of one call of Import.
type importer struct {
	*Cluster
	namespace string
	dryRun    bool
	reader    *Reader
	// entries are the sessions that were read, in the order of the file.
	entries []*entry
	// memory limits the lines and the snapshots that are in memory, in bytes.
	memory *semaphore.Weighted
}

// createAll creates all sessions of the file. Those that do not depend on each other are created concurrently.
func (i *importer) createAll(ctx context.Context, sessions int) error {
	step, end := i.Progress("import", sessions)
	defer end()
	b := i.newBatch(ctx, 0)
	for {
		session, err := i.reader.Next()
		if errors.Is(err, io.EOF) {
			return b.Wait()
		}
		if err != nil {
			return cmp.Or(b.Wait(), err)
		}
		if session.parent >= b.first { // it is perhaps not stored yet
			if err := b.Wait(); err != nil {
				return err
			}
			b = i.newBatch(ctx, len(i.entries))
		}
		release, err := i.take(b.ctx, int64(len(i.reader.line)))
		if err != nil {
			return cmp.Or(b.Wait(), err) // a session has failed, or ctx is done
		}
		e := newEntry(session)
		i.entries = append(i.entries, e)
		parent := i.outcomeOf(e.parent)
		b.Go(func() error {
			defer release()
			defer step()
			var err error
			e.outcome, err = i.importSession(b.ctx, session, parent)
			return err
		})
	}
}

// take waits until some bytes may be in memory, or nothing else is.
func (i *importer) take(ctx context.Context, bytes int64) (release func(), err error) {
	bytes = min(bytes, inFlightBytes)
	return func() { i.memory.Release(bytes) }, i.memory.Acquire(ctx, bytes)
}

// batch is a group of sessions that do not depend on each other: all from the first one on.
type batch struct {
	*errgroup.Group
	ctx   context.Context
	first int
}

func (i *importer) newBatch(ctx context.Context, first int) batch {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(i.Concurrency)
	return batch{group, ctx, first}
}

// outcomeOf returns the outcome of an entry of an earlier batch, or created for no parent.
func (i *importer) outcomeOf(index int) outcome {
	if index < 0 {
		return created
	}
	return i.entries[index].outcome
}

func (i *importer) result() *Imported {
	result := &Imported{Header: i.reader.Header, Namespace: i.namespace}
	counts := map[outcome]*int{
		created: &result.Created, equal: &result.Equal, different: &result.Different, refused: &result.Refused, leftOut: &result.LeftOut,
	}
	histories := map[history]*int{whole: &result.Verified, broken: &result.Broken, wrong: &result.Wrong}
	for _, e := range i.entries {
		*counts[e.outcome]++
		if !e.outcome.stored() {
			continue
		}
		*histories[e.history]++
		if e.withoutBodies {
			result.WithoutBodies++
		}
	}
	if i.dryRun {
		result.Verified = 0
	}
	return result
}
