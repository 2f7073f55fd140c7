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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// inFlightBytes is how many bytes of lines are imported at once, unless a single one is longer. Their memory is a few times as much. More
// would not be faster: only one chunk of a namespace is written at once.
const inFlightBytes = 16 << 20

// ImportOptions are the options of Import.
type ImportOptions struct {
	// Namespace is the namespace to import into, which must exist. Empty means the exported one.
	Namespace string
	// DryRun makes the API server check each object that would be created, and creates nothing.
	DryRun bool
}

// Counts are the results of an import for the objects of a kind. The parent of a conversation is its last turn, and that of a summary its
// conversation.
type Counts struct {
	// Created are new. Equal ones existed with the same spec and at least the same labels and annotations. Different ones existed too,
	// and were left as they are. Refused ones were not accepted by the API server. LeftOut are those whose parent, or a parent of it, is
	// different or was refused: they would have another history.
	Created, Equal, Different, Refused, LeftOut int
	// Each created and equal one is one of these. Verified ones have a whole history, which is stored as it was exported. In a dry run,
	// nothing is verified. Broken ones had no whole history when they were exported, because a turn or its bodies were missing, or because
	// of a cycle, and are stored like that. Of Wrong ones, a turn of the history is not stored as it was exported.
	Verified, Broken, Wrong int
}

// Total is the number of objects in the file.
func (c *Counts) Total() int { return c.Created + c.Equal + c.Different + c.Refused + c.LeftOut }

func (c *Counts) complete() bool { return c.Different+c.Refused+c.LeftOut+c.Wrong == 0 }

// Imported is the result of an import.
type Imported struct {
	Header                             Header
	Namespace                          string
	Sessions, Conversations, Summaries Counts
	// WithoutBodies are those of the created and equal sessions whose snapshot could not be read when they were exported.
	WithoutBodies int
}

// Complete reports whether everything in the file is now stored as it was exported, or would be.
func (i *Imported) Complete() bool {
	return i.Sessions.complete() && i.Conversations.complete() && i.Summaries.complete()
}

// counts returns the counts of each kind.
func (i *Imported) counts() [len(kinds)]*Counts {
	return [...]*Counts{sessionKind: &i.Sessions, conversationKind: &i.Conversations, summaryKind: &i.Summaries}
}

// outcome is what an import has done with an object.
type outcome uint8

const (
	pending outcome = iota
	created
	equal
	different
	refused
	leftOut
)

// stored reports whether the object of the file is in the cluster, or would be.
func (o outcome) stored() bool { return o == created || o == equal }

// entry is an object that was read from the file.
type entry struct {
	kind    kind
	name    string
	parent  int
	content digest
	// parentID is the response ID of the parent of an orphan, or of one on a cycle.
	parentID                       string
	cycle, misnamed, withoutBodies bool

	outcome outcome
	// same is set if the object is stored as it was exported, whatever precedes it.
	same    bool
	history history
}

func newEntry(o *Object) *entry {
	e := &entry{
		kind: o.kind, name: o.Name, parent: o.parent, content: o.parsed.content,
		cycle: o.Cycle, misnamed: o.misnamed(), withoutBodies: o.withoutBodies(),
	}
	if o.parent < 0 && !e.misnamed {
		e.parentID = o.parsed.parentID
	}
	return e
}

// orphan reports whether the parent of the session, or the last turn of the conversation, was not exported.
func (e *entry) orphan() bool { return e.parentID != "" && !e.cycle }

// alone returns the history that the object would have if that of its parent were whole.
func (e *entry) alone() history {
	switch {
	case !e.same:
		return wrong
	case e.withoutBodies || e.misnamed || e.parentID != "":
		return broken
	}
	return whole
}

// Import creates the objects of a file that do not exist. It overwrites and deletes none, so it can be repeated: after an interruption, it
// continues. It needs the rights to get and create responsesessions, conversations and conversationsummaries, to list conversations, and to
// get, create and delete snapshotchunks. If in can seek, the
// whole file is checked first. Otherwise, what comes before a damaged line is imported, and the error is ErrDamaged.
//
// A snapshot is written before its session, within the time that the sweeper of the operator grants to saves, and then confirmed as
// after a slow save.
func (c *Cluster) Import(ctx context.Context, in io.Reader, options ImportOptions) (*Imported, error) {
	objects, err := c.check(ctx, in)
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
	if err := i.refuseDeletions(ctx); err != nil {
		return nil, err
	}
	if err := i.createAll(ctx, objects); err != nil {
		return nil, fmt.Errorf("the import is incomplete, and continues when it is repeated: %w", err)
	}
	if err := i.verify(ctx); err != nil {
		return nil, fmt.Errorf("unable to verify what was imported: %w", err)
	}
	return i.result(), nil
}

// check reads a file that can seek to its end, returns to where it began, and returns the number of objects. It returns -1 for others.
func (c *Cluster) check(ctx context.Context, in io.Reader) (objects int, err error) {
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
			return len(reader.contents.digests), err
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
	// entries are the objects that were read, in the order of the file.
	entries []*entry
	// memory limits the lines and the snapshots that are in memory, in bytes.
	memory *semaphore.Weighted
}

// refuseDeletions returns an error while a conversation of the namespace is being deleted with its turns. The operator, which knows nothing of
// the import, could delete turns that it is about to create, and the last turns of conversations.
func (i *importer) refuseDeletions(ctx context.Context) error {
	name, err := retry(ctx, func() (name string, err error) {
		selector := fields.OneTermEqualSelector("spec.state", v1alpha1.ConversationStateDeleting).String()
		request := i.client.Get().Namespace(i.namespace).Resource(kubeclient.Conversations).Param("fieldSelector", selector).Param("limit", "1")
		_, err = kubeclient.ListMetadata(ctx, request, func(metadata *metav1.ObjectMeta) { name = metadata.Name })
		return name, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("unable to list the conversations of namespace %s: %w", i.namespace, err)
	case name != "":
		return fmt.Errorf("conversation %s of namespace %s is being deleted with its turns: wait until it is gone", name, i.namespace)
	}
	return nil
}

// createAll creates all objects of the file. Those that do not depend on each other are created concurrently.
func (i *importer) createAll(ctx context.Context, objects int) error {
	step, end := i.Progress("import", objects)
	defer end()
	b := i.newBatch(ctx, 0)
	for {
		o, err := i.reader.Next()
		if errors.Is(err, io.EOF) {
			return b.Wait()
		}
		if err != nil {
			return cmp.Or(b.Wait(), err)
		}
		if o.parent >= b.first { // it is perhaps not stored yet
			if err := b.Wait(); err != nil {
				return err
			}
			b = i.newBatch(ctx, len(i.entries))
		}
		release, err := i.take(b.ctx, int64(len(i.reader.line)))
		if err != nil {
			return cmp.Or(b.Wait(), err) // an object has failed, or ctx is done
		}
		e := newEntry(o)
		i.entries = append(i.entries, e)
		parent := i.outcomeOf(e.parent)
		b.Go(func() error {
			defer release()
			defer step()
			var err error
			e.outcome, err = i.importObject(b.ctx, o, parent)
			return err
		})
	}
}

// take waits until some bytes may be in memory, or nothing else is.
func (i *importer) take(ctx context.Context, bytes int64) (release func(), err error) {
	bytes = min(bytes, inFlightBytes)
	return func() { i.memory.Release(bytes) }, i.memory.Acquire(ctx, bytes)
}

// batch is a group of objects that do not depend on each other: all from the first one on.
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
	counts := result.counts()
	for _, e := range i.entries {
		counts[e.kind].add(e, i.dryRun)
		if e.outcome.stored() && e.withoutBodies {
			result.WithoutBodies++
		}
	}
	return result
}

// add counts an entry. In a dry run, nothing is verified.
func (c *Counts) add(e *entry, dryRun bool) {
	switch e.outcome {
	case created:
		c.Created++
	case equal:
		c.Equal++
	case different:
		c.Different++
	case refused:
		c.Refused++
	case leftOut:
		c.LeftOut++
	}
	switch {
	case !e.outcome.stored():
	case e.history == broken:
		c.Broken++
	case e.history == wrong:
		c.Wrong++
	case !dryRun:
		c.Verified++
	}
}
