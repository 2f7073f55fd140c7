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
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	sigsjson "sigs.k8s.io/json"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/snapshot"
)

// digest is a SHA-256.
type digest = [sha256.Size]byte

// parsed is what a spec says, whatever else it contains.
type parsed struct {
	// id is the response ID of a session, and otherwise the conversation ID.
	id string
	// parentID is the ID of the parent: the response ID of the previous turn of a session and of the head of a conversation, and the
	// conversation ID of a summary.
	parentID string
	// ref is the snapshot of a session.
	ref *v1alpha1.SnapshotReference
	// deleting is set if a conversation is being deleted with its turns.
	deleting bool
	// reserved is set if the place of the head of a conversation was reserved, after the turn with the response ID base.
	reserved bool
	base     string
	// content is the SHA-256 of the canonical spec.
	content digest
}

// parse decodes the spec of an object of a kind as the API server sends it.
func parse(kind kind, spec []byte) (*parsed, error) {
	var members map[string]any
	strict, err := sigsjson.UnmarshalStrict(spec, &members)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("unable to decode its spec: %w", err)
	}
	var p *parsed
	switch kind {
	case conversationKind:
		p, err = parseConversation(spec)
	case summaryKind:
		p, err = parseSummary(spec)
	default:
		p, err = parseSession(spec, members)
	}
	if err != nil {
		return nil, err
	}
	canonical, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("unable to encode its spec: %w", err)
	}
	p.content = sha256.Sum256(canonical)
	return p, nil
}

// parseSession parses the spec of a session, even if Go cannot decode it as a ResponseSession. It removes from its members what depends on
// where the snapshot is stored.
func parseSession(spec []byte, members map[string]any) (*parsed, error) {
	p := &parsed{}
	p.id, _ = members["responseID"].(string)
	p.parentID, _ = members["previousResponseID"].(string)
	format, _ := members["format"].(int64)
	if p.id == "" {
		return nil, errors.New("its spec has no responseID")
	}
	if reference, ok := members["snapshot"].(map[string]any); ok {
		p.ref = &v1alpha1.SnapshotReference{}
		if err := json.Unmarshal([]byte(jsonvalue.RawMembers(jsonvalue.Text(spec), "snapshot")[0]), p.ref); err != nil {
			p.ref = &v1alpha1.SnapshotReference{} // the API server accepts numbers that are too large: it refers to nothing
		}
		members["snapshot"] = stable(reference)
	}
	return p, snapshot.CheckFormats("this program", format, p.ref)
}

// stable returns the fields of a reference that do not depend on where, and how well compressed, the snapshot is stored.
func stable(reference map[string]any) map[string]any {
	kept := map[string]any{}
	for _, key := range []string{"format", "sizeBytes", "sha256"} {
		if value, ok := reference[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

func parseConversation(spec []byte) (*parsed, error) {
	var c v1alpha1.ConversationSpec
	if err := decode(spec, &c, &c.ConversationID); err != nil {
		return nil, err
	}
	return &parsed{
		id: c.ConversationID, parentID: c.HeadResponseID, deleting: c.State == v1alpha1.ConversationStateDeleting,
		reserved: c.Reservation != nil, base: c.BaseResponseID,
	}, nil
}

func parseSummary(spec []byte) (*parsed, error) {
	var s v1alpha1.ConversationSummarySpec
	if err := decode(spec, &s, &s.ConversationID); err != nil {
		return nil, err
	}
	return &parsed{id: s.ConversationID, parentID: s.ConversationID}, nil
}

// decode decodes a spec that must have a conversation ID. Its errors do not quote the spec.
func decode(spec []byte, into any, conversationID *string) error {
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(spec, into); err != nil {
		return errors.New("unable to decode its spec: a field has a value of another type")
	}
	if *conversationID == "" {
		return errors.New("its spec has no conversationID")
	}
	return nil
}

// fold returns the digest of an object with some content after a parent with a digest, or the zero digest for none.
func fold(parent, content digest) digest { return sha256.Sum256(append(parent[:], content[:]...)) }
