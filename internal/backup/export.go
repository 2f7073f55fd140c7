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
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// Exported are the numbers of objects of an export.
type Exported struct {
	// Sessions are all, and Snapshots those that have bodies outside their objects. Unreadable are those of them whose bodies are not
	// in the file, because they could not be read.
	Sessions, Snapshots, Unreadable int
	// Conversations and Summaries are those in the file. LeftOut are objects that are not, because they could not be decoded or are nested too
	// deeply.
	Conversations, Summaries, LeftOut int
}

// Export writes the sessions and the conversations of a namespace. It needs the rights to list and get responsesessions, to list
// conversations and conversationsummaries, to get snapshotchunks and to get the namespace kube-system. If it returns an error, what was
// written is incomplete, and has no trailer.
func (c *Cluster) Export(ctx context.Context, namespace string, out io.Writer) (*Exported, error) {
	header, err := c.header(ctx, namespace)
	if err != nil {
		return nil, err
	}
	e := &exporter{Cluster: c, namespace: namespace}
	for i := range e.spools {
		if e.spools[i], err = newSpool(kind(i)); err != nil {
			return nil, err
		}
		defer func() { _ = e.spools[i].close() }()
	}
	// What refers to something is listed before that: the last turn of a conversation is not newer than the list of the turns.
	for _, s := range slices.Backward(e.spools[:]) {
		if err := c.list(ctx, namespace, s); err != nil {
			return nil, err
		}
	}
	return e.write(ctx, header, out)
}

func (c *Cluster) header(ctx context.Context, namespace string) (header Header, err error) {
	header = Header{Format: Format, Version: Version, APIVersion: v1alpha1.GroupVersion.String(), Namespace: namespace}
	if err := header.check(); err != nil { // without a namespace, all would be listed
		return header, err
	}
	if header.ClusterUID, err = kubeclient.ClusterID(ctx, c.client); err != nil {
		return header, err
	}
	header.ExportedAt, err = kubeclient.Now(ctx, c.client)
	return header, err
}

// exporter is the state of one call of Export.
type exporter struct {
	*Cluster
	namespace string
	// spools are the objects of each kind.
	spools [len(kinds)]*spool
	writer *Writer
	step   func()
	result Exported
}

// write writes all objects, parents first.
func (e *exporter) write(ctx context.Context, header Header, out io.Writer) (*Exported, error) {
	var err error
	if e.writer, err = NewWriter(out, header); err != nil {
		return nil, err
	}
	var end func()
	total := 0
	for _, s := range e.spools {
		total += len(s.index)
		e.result.LeftOut += s.unreadable
	}
	e.step, end = e.Progress("export", total)
	defer end()
	positions := e.spools[sessionKind].positions()
	if err := e.writeSessions(ctx, positions); err != nil {
		return nil, err
	}
	if err := e.writeConversations(positions); err != nil {
		return nil, err
	}
	if err := e.writer.Close(); err != nil {
		return nil, fmt.Errorf("unable to write the export: %w", err)
	}
	return &e.result, nil
}

func (e *exporter) writeSessions(ctx context.Context, positions map[string]int) error {
	all := e.spools[sessionKind]
	order, onCycle := parentsFirst(all.parents(positions))
	for _, i := range order {
		session, err := all.read(i)
		if err != nil {
			return err
		}
		session.Cycle = onCycle[i]
		if err := e.addBodies(ctx, session); err != nil {
			return session.named(err)
		}
		if err := e.writeObject(session, &e.result.Sessions); err != nil {
			return err
		}
	}
	return nil
}

// writeObject writes an object and counts it, unless it must be left out.
func (e *exporter) writeObject(o *Object, written *int) error {
	defer e.step()
	switch err := e.writer.Write(o); {
	case errors.Is(err, ErrTooDeep):
		e.result.LeftOut++
		e.Problem(o.label(), ErrTooDeep.Error())
	case err != nil:
		return fmt.Errorf("unable to write the export: %w", err)
	default:
		*written++
	}
	return nil
}

// addBodies adds the bodies of a session's snapshot, if it has one that can be read.
func (e *exporter) addBodies(ctx context.Context, s *Object) error {
	if err := s.parse(e.MaxTurnBytes); err != nil {
		return err
	}
	ref := s.parsed.ref
	if ref == nil {
		return nil
	}
	e.result.Snapshots++
	if ref.Store == v1alpha1.SnapshotStoreBlob && e.SnapshotStore == "" {
		return errors.New("its bodies are in a bucket: name it with --snapshot-store, as for the operator")
	}
	name := types.NamespacedName{Namespace: e.namespace, Name: s.Name}
	bodies, problem, err := e.read(ctx, name, ref)
	if err != nil {
		return err
	}
	if problem == "" {
		s.Bodies = bodies
		return nil
	}
	e.result.Unreadable++
	changed, err := e.changed(ctx, name, s.parsed)
	if err != nil {
		return err
	}
	if changed {
		problem = "it was overwritten or deleted while it was exported: export the namespace again"
	}
	e.Problem(s.label(), problem)
	return nil
}

// changed reports whether a session has another content than before.
func (e *exporter) changed(ctx context.Context, name types.NamespacedName, before *parsed) (bool, error) {
	s, err := e.object(ctx, sessionKind, name)
	if err != nil || s == nil {
		return s == nil, err
	}
	readable := s.parse(e.MaxTurnBytes) == nil
	return !readable || s.parsed.content != before.content, nil
}

// positions returns the positions of all objects by name.
func (s *spool) positions() map[string]int {
	positions := make(map[string]int, len(s.index))
	for i, object := range s.index {
		positions[object.name] = i
	}
	return positions
}

// parents returns the positions of the parents of all sessions, as parentsFirst needs them.
func (s *spool) parents(positions map[string]int) []int {
	parents := make([]int, len(s.index))
	for i, session := range s.index {
		parents[i] = -1
		if parent, found := positions[session.link]; found {
			parents[i] = parent
		}
	}
	return parents
}
