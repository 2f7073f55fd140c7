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
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// kind is a kind of objects of a file. Objects of a kind depend only on objects of the same kind and of the kinds before it.
type kind uint8

const (
	sessionKind kind = iota
	conversationKind
	summaryKind
)

// kinds are the resources of all kinds, and what messages call an object.
var kinds = [...]struct{ resource, name, noun string }{
	sessionKind:      {kubeclient.Sessions, v1alpha1.ResponseSessionKind, "session"},
	conversationKind: {kubeclient.Conversations, v1alpha1.ConversationKind, "conversation"},
	summaryKind:      {kubeclient.Summaries, v1alpha1.ConversationSummaryKind, "summary"},
}

// parentKind returns the kind of the parents of the objects of a kind.
func (k kind) parentKind() kind {
	if k == summaryKind {
		return conversationKind
	}
	return sessionKind
}

// Object is an object of a file. The package comment describes its fields.
type Object struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        json.RawMessage   `json:"spec"`
	Bodies      *Bodies           `json:"bodies,omitempty"`
	Cycle       bool              `json:"cycle,omitempty"`
	Digest      string            `json:"digest,omitempty"`

	kind kind
	// parsed is what Spec says. parent is the index of the parent in the file, or -1 if digest does not depend on one.
	parsed *parsed
	parent int
	digest digest

	// These are set only for an object of the API server: its UID, that of the conversation that owns it, and whether it is being deleted.
	uid, owner types.UID
	deleting   bool
}

// Bodies are the bodies of a snapshot.
type Bodies struct {
	Request  []byte `json:"request,omitempty"`
	Response []byte `json:"response,omitempty"`
	Metadata []byte `json:"metadata,omitempty"`
}

func (b *Bodies) snapshot() snapshot.Bodies { return snapshot.Bodies(*b) }

// newObject returns the object of a kind that the API server has sent. Its spec is not parsed yet.
func newObject(kind kind, text string) (*Object, error) {
	fields := jsonvalue.RawMembers(text, "metadata", "spec")
	var metadata struct {
		Name                string
		UID                 types.UID
		Labels, Annotations map[string]string
		OwnerReferences     []metav1.OwnerReference
		DeletionTimestamp   *string
	}
	if err := json.Unmarshal([]byte(fields[0]), &metadata); err != nil {
		return nil, fmt.Errorf("unable to decode the metadata of a %s: %w", kinds[kind].noun, err)
	}
	o := &Object{
		Name: metadata.Name, Labels: metadata.Labels, Annotations: metadata.Annotations, Spec: json.RawMessage(fields[1]),
		kind: kind, uid: metadata.UID, deleting: metadata.DeletionTimestamp != nil,
	}
	for _, owner := range metadata.OwnerReferences {
		if owner.Kind == v1alpha1.ConversationKind {
			o.owner = cmp.Or(o.owner, owner.UID)
		}
	}
	return o, nil
}

// isDeleting reports whether an object that was parsed is being deleted, or a conversation with its turns.
func (o *Object) isDeleting() bool { return o.deleting || o.parsed.deleting }

// label returns how reports identify the object.
func (o *Object) label() string { return label(o.kind, o.Name) }

// label returns how reports identify an object: sessions by their names alone.
func label(kind kind, name string) string {
	if kind == sessionKind {
		return name
	}
	return kinds[kind].noun + " " + name
}

// named adds the name of the object to an error.
func (o *Object) named(err error) error {
	return fmt.Errorf("%s %s: %w", kinds[o.kind].noun, o.Name, err)
}

// omitsOwner reports whether the object is a session that must not have an ownerReference to its parent.
func (o *Object) omitsOwner() bool {
	return o.kind == sessionKind && o.Annotations[v1alpha1.OmitOwnerReferenceAnnotation] == "true"
}

// misnamed reports whether the name of a session or a conversation does not belong to its ID, so that nothing finds it by that.
func (o *Object) misnamed() bool {
	return o.kind != summaryKind && v1alpha1.ObjectName(o.parsed.id) != o.Name
}

// withoutBodies reports whether the snapshot of the session could not be read when it was exported.
func (o *Object) withoutBodies() bool { return o.parsed.ref != nil && o.Bodies == nil }

// parse decodes the spec and checks it against the rest of the object.
func (o *Object) parse(maxTurnBytes int) error {
	if len(validation.IsDNS1123Subdomain(o.Name)) > 0 {
		return fmt.Errorf("%.253q is not the name of a %s", o.Name, kinds[o.kind].noun)
	}
	if o.parsed == nil {
		var err error
		if o.parsed, err = parse(o.kind, o.Spec); err != nil {
			return err
		}
	}
	switch ref := o.parsed.ref; {
	case o.Bodies == nil:
		return nil
	case ref == nil:
		return errors.New("it has bodies, but spec.snapshot is absent")
	case o.Bodies.snapshot().Size() > maxTurnBytes:
		return fmt.Errorf("its bodies have %d bytes: at most %d are allowed, see --max-turn-bytes", o.Bodies.snapshot().Size(), maxTurnBytes)
	case !o.Bodies.snapshot().Matches(ref):
		return errors.New("its bodies do not match the SHA-256 in spec.snapshot")
	}
	return nil
}

// editSpec changes the members of the spec, and keeps those that this build does not know.
func (o *Object) editSpec(edit func(members map[string]json.RawMessage)) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(o.Spec, &members); err != nil {
		return nil, err
	}
	edit(members)
	return json.Marshal(members)
}
