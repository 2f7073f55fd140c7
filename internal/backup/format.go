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
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// Format and Version identify the files that this build writes.
const (
	Format  = "catena-sessions"
	Version = 2
)

// firstVersion is the oldest version that this build reads. Its files have no conversations.
const firstVersion = 1

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
	case h.Version < firstVersion || h.Version > Version:
		return fmt.Errorf("the file has version %d, and this program reads versions up to %d: use a program of the release that has exported it, or a newer one", h.Version, Version)
	case h.APIVersion != v1alpha1.GroupVersion.String():
		return fmt.Errorf("the file has sessions of %q, and this program reads %s: use a program of the release that has exported it", h.APIVersion, v1alpha1.GroupVersion)
	case len(validation.IsDNS1123Label(h.Namespace)) > 0:
		return fmt.Errorf("the header names an invalid namespace: %.63q", h.Namespace)
	}
	return nil
}

// line is any line but the first. It has one member.
type line struct {
	Session      *Object  `json:"session,omitempty"`
	Conversation *Object  `json:"conversation,omitempty"`
	Summary      *Object  `json:"summary,omitempty"`
	Trailer      *trailer `json:"trailer,omitempty"`
}

// newLine returns the line of an object.
func newLine(o *Object) (l line) {
	*l.objects()[o.kind] = o
	return l
}

// objects returns the members for objects, by kind.
func (l *line) objects() [len(kinds)]**Object {
	return [...]**Object{sessionKind: &l.Session, conversationKind: &l.Conversation, summaryKind: &l.Summary}
}

// object returns the object of a line, or nil for the trailer.
func (l *line) object() (*Object, error) {
	var found *Object
	members := 0
	for k, member := range l.objects() {
		if *member != nil {
			found = *member
			found.kind = kind(k)
			members++
		}
	}
	if l.Trailer != nil {
		members++
	}
	if members != 1 {
		return nil, errors.New("it is neither an object nor the trailer")
	}
	return found, nil
}

// trailer is the last line of a file.
type trailer struct {
	Sessions      int    `json:"sessions"`
	Conversations int    `json:"conversations"`
	Summaries     int    `json:"summaries"`
	SHA256        string `json:"sha256"`
}

func newTrailer(c *contents, sha256 string) trailer {
	return trailer{
		Sessions: len(c.index[sessionKind]), Conversations: len(c.index[conversationKind]), Summaries: len(c.index[summaryKind]), SHA256: sha256,
	}
}
