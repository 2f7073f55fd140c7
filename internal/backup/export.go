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

	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// Exported are the numbers of sessions of an export.
type Exported struct {
	// Sessions are all, and Snapshots those that have bodies outside their objects. Unreadable are those of them whose bodies are not
	// in the file, because they could not be read.
	Sessions, Snapshots, Unreadable int
}

// Export writes the sessions of a namespace. It needs the rights to list and get responsesessions, to get snapshotchunks and to get the
// namespace kube-system. If it returns an error, what was written is incomplete, and has no trailer.
func (c *Cluster) Export(ctx context.Context, namespace string, out io.Writer) (*Exported, error) {
	header, err := c.header(ctx, namespace)
	if err != nil {
		return nil, err
	}
	all, err := newSpool()
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.close() }()
	if err := c.list(ctx, namespace, all); err != nil {
		return nil, err
	}
	return c.write(ctx, header, all, out)
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

// write writes the sessions of a spool, parents first.
func (c *Cluster) write(ctx context.Context, header Header, all *spool, out io.Writer) (*Exported, error) {
	writer, err := NewWriter(out, header)
	if err != nil {
		return nil, err
	}
	step, end := c.Progress("export", len(all.index))
	defer end()
	exported := &Exported{Sessions: len(all.index)}
	order, onCycle := parentsFirst(all.parents())
	for _, i := range order {
		session, err := all.read(i)
		if err != nil {
			return nil, err
		}
		session.Cycle = onCycle[i]
		if err := c.addBodies(ctx, header.Namespace, session, exported); err != nil {
			return nil, named(session.Name, err)
		}
		if err := writer.Write(session); err != nil {
			return nil, fmt.Errorf("unable to write the export: %w", err)
		}
		step()
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("unable to write the export: %w", err)
	}
	return exported, nil
}

// addBodies adds the bodies of a session's snapshot, if it has one that can be read.
func (c *Cluster) addBodies(ctx context.Context, namespace string, s *Session, exported *Exported) error {
	if err := s.parse(c.MaxTurnBytes); err != nil {
		return err
	}
	t := s.turn
	if t.ref == nil {
		return nil
	}
	exported.Snapshots++
	if t.ref.Store == v1alpha1.SnapshotStoreBlob && c.SnapshotStore == "" {
		return errors.New("its bodies are in a bucket: name it with --snapshot-store, as for the operator")
	}
	name := types.NamespacedName{Namespace: namespace, Name: s.Name}
	bodies, problem, err := c.read(ctx, name, t.ref)
	if err != nil {
		return err
	}
	if problem == "" {
		s.Bodies = bodies
		return nil
	}
	exported.Unreadable++
	changed, err := c.changed(ctx, name, t)
	if err != nil {
		return err
	}
	if changed {
		problem = "it was overwritten or deleted while it was exported: export the namespace again"
	}
	c.Problem(s.Name, problem)
	return nil
}

// changed reports whether a session has another content than a turn that was read before.
func (c *Cluster) changed(ctx context.Context, name types.NamespacedName, before *turn) (bool, error) {
	object, found, err := c.object(ctx, name)
	if err != nil || !found {
		return !found, err
	}
	now, _ := parseTurn([]byte(jsonvalue.RawMembers(jsonvalue.Text(object), "spec")[0]))
	return now == nil || now.content != before.content, nil
}

// parents returns the positions of the parents of all sessions, as parentsFirst needs them.
func (s *spool) parents() []int {
	positions := make(map[string]int, len(s.index))
	for i, session := range s.index {
		positions[session.name] = i
	}
	parents := make([]int, len(s.index))
	for i, session := range s.index {
		parents[i] = -1
		if parent, found := positions[session.parent]; found {
			parents[i] = parent
		}
	}
	return parents
}
