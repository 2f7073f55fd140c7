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
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/snapshot"
)

// Format and Version identify the files that this build writes and reads.
const (
	Format  = "catena-sessions"
	Version = 1
)

// DefaultMaxTurnBytes is 64 MiB, as for stores: the bodies of one session together.
const DefaultMaxTurnBytes = 64 << 20

// maxObjectBytes is more than an object takes as JSON: etcd accepts 1.5 MiB, and a byte can take six when it is escaped.
const maxObjectBytes = 16 << 20

// maxLineBytes returns the maximum length of a line.
func maxLineBytes(maxTurnBytes int) int {
	return maxObjectBytes + base64.StdEncoding.EncodedLen(maxTurnBytes)
}

// Header is the first line of a file.
type Header struct {
	Format     string    `json:"format"`
	Version    int       `json:"version"`
	APIVersion string    `json:"apiVersion"`
	ExportedAt time.Time `json:"exportedAt"`
	ClusterUID string    `json:"clusterUID"`
	Namespace  string    `json:"namespace"`
}

// check returns an error unless this build can read the file.
func (h *Header) check() error {
	switch {
	case h.Format != Format:
		return errors.New("the file is no export of sessions: its first line is not a header of `catena export`")
	case h.Version != Version:
		return fmt.Errorf("the file has version %d, and this program reads version %d: use a program of the release that has exported it, or a newer one", h.Version, Version)
	case h.APIVersion != v1alpha1.GroupVersion.String():
		return fmt.Errorf("the file has sessions of %q, and this program reads %s: use a program of the release that has exported it", h.APIVersion, v1alpha1.GroupVersion)
	case len(validation.IsDNS1123Label(h.Namespace)) > 0:
		return fmt.Errorf("the header names an invalid namespace: %.63q", h.Namespace)
	}
	return nil
}

// line is any line but the first.
type line struct {
	Session *Session `json:"session,omitempty"`
	Trailer *trailer `json:"trailer,omitempty"`
}

// trailer is the last line of a file.
type trailer struct {
	Sessions int    `json:"sessions"`
	SHA256   string `json:"sha256"`
}

// Session is a session of a file. The package comment describes its fields.
type Session struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        json.RawMessage   `json:"spec"`
	Bodies      *Bodies           `json:"bodies,omitempty"`
	Cycle       bool              `json:"cycle,omitempty"`
	Digest      string            `json:"digest,omitempty"`

	// turn is what Spec says. parent is the index of the parent in the file, or -1 if digest does not depend on one.
	turn   *turn
	parent int
	digest digest
}

// Bodies are the bodies of a snapshot.
type Bodies struct {
	Request  []byte `json:"request,omitempty"`
	Response []byte `json:"response,omitempty"`
	Metadata []byte `json:"metadata,omitempty"`
}

func (b *Bodies) snapshot() snapshot.Bodies { return snapshot.Bodies(*b) }

// omitsOwner reports whether the session must not have an ownerReference to its parent.
func (s *Session) omitsOwner() bool {
	return s.Annotations[v1alpha1.OmitOwnerReferenceAnnotation] == "true"
}

// misnamed reports whether the name of the session does not belong to its response ID, so that it is in no chain.
func (s *Session) misnamed() bool { return v1alpha1.ObjectName(s.turn.responseID) != s.Name }

// withoutBodies reports whether the snapshot of the session could not be read when it was exported.
func (s *Session) withoutBodies() bool { return s.turn.ref != nil && s.Bodies == nil }

// parse decodes the spec and checks it against the rest of the session.
func (s *Session) parse(maxTurnBytes int) error {
	if len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
		return fmt.Errorf("%.253q is not the name of a session", s.Name)
	}
	if s.turn == nil {
		var err error
		if s.turn, err = parseTurn(s.Spec); err != nil {
			return err
		}
	}
	switch ref := s.turn.ref; {
	case s.Bodies == nil:
		return nil
	case ref == nil:
		return errors.New("it has bodies, but spec.snapshot is absent")
	case s.Bodies.snapshot().Size() > maxTurnBytes:
		return fmt.Errorf("its bodies have %d bytes: at most %d are allowed, see --max-turn-bytes", s.Bodies.snapshot().Size(), maxTurnBytes)
	case !s.Bodies.snapshot().Matches(ref):
		return errors.New("its bodies do not match the SHA-256 in spec.snapshot")
	}
	return nil
}
