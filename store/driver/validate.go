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

package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
)

// The limits of a Session's strings, in characters.
const (
	MaxIDLength     = 512
	MaxStatusLength = 64
)

// Validate returns an error that is ErrInvalid if a session must not be stored: an ID or the status is missing or too long,
// a time cannot be written in RFC 3339, the turn is its own parent, it has more than chain.MaxItems items, or a body is not the JSON of the
// Responses API or is nested more than 1000 levels deep. store.Store.Save calls it.
func (s *Session) Validate() error {
	for _, field := range []struct {
		name, value string
		min, max    int
	}{
		{"response ID", s.ResponseID, 1, MaxIDLength},
		{"previous response ID", s.PreviousResponseID, 0, MaxIDLength},
		{"conversation ID", s.ConversationID, 0, MaxIDLength},
		{"status", s.Status, 1, MaxStatusLength},
	} {
		if err := checkText(field.name, field.value, field.min, field.max); err != nil {
			return s.invalid("%w", err)
		}
	}
	for _, at := range []time.Time{s.CreatedAt, s.CompletedAt} {
		if year := at.UTC().Year(); year < 0 || year > 9999 {
			return s.invalid("a time is in the year %d: must be from 0 to 9999", year)
		}
	}
	if s.PreviousResponseID == s.ResponseID {
		return s.invalid("the turn must not be its own parent")
	}
	var objects [3]jsonvalue.Object
	for i, body := range []struct {
		name string
		raw  []byte
	}{{"request", s.Request}, {"response", s.Response}, {"metadata", s.Metadata}} {
		var err error
		if objects[i], err = parseBody(body.raw); err != nil {
			return s.invalid("the %s %w", body.name, err)
		}
	}
	if err := chain.CheckObjects(objects[0], objects[1]); err != nil {
		return s.invalid("the bodies cannot be converted into input items: %w", err)
	}
	return nil
}

// checkText returns an error if the length of a text is not from least to most characters.
func checkText(name, text string, least, most int) error {
	length := utf8.RuneCountInString(text)
	switch {
	case !utf8.ValidString(text):
		return fmt.Errorf("the %s must be UTF-8", name)
	case length < least:
		return fmt.Errorf("the %s must not be empty", name)
	case length > most:
		return fmt.Errorf("the %s has %d characters: at most %d are allowed", name, length, most)
	}
	return nil
}

// Validate returns an error that is ErrInvalid if a conversation must not be stored: a text is too long or not UTF-8, the metadata is not a JSON
// object, or too large, or a hidden item or the fork is incomplete.
func (c *Conversation) Validate() error {
	for _, field := range []struct{ name, value string }{
		{"ID of the forked conversation", c.ForkedFrom.ConversationID},
		{"response ID of the fork", c.ForkedFrom.ResponseID},
		{"ID of the parent conversation", c.ParentConversationID},
		{"response ID of the head", c.Head.ResponseID},
	} {
		if err := checkText(field.name, field.value, 0, MaxIDLength); err != nil {
			return invalidConversation(c.ConversationID, err)
		}
	}
	for _, hidden := range c.HiddenItems {
		err := checkText("response ID of a hidden item", hidden.ResponseID, 1, MaxIDLength)
		if err == nil && (hidden.Number < 0 || hidden.Number > math.MaxInt32) {
			err = fmt.Errorf("the number of a hidden item is %d: must be from 0 to %d", hidden.Number, math.MaxInt32)
		}
		if err != nil {
			return invalidConversation(c.ConversationID, err)
		}
	}
	if c.ForkedFrom.ConversationID == "" && c.ForkedFrom.ResponseID != "" {
		return invalidConversation(c.ConversationID, errors.New("the fork has a response ID, but no conversation ID"))
	}
	return ConversationPatch{UserID: &c.UserID, Title: &c.Title, SystemPrompt: &c.SystemPrompt, Metadata: c.Metadata}.ValidateFor(c.ConversationID)
}

// ValidateFor returns an error that is ErrInvalid if the conversation ID or a member of the patch must not be stored.
func (p ConversationPatch) ValidateFor(conversationID string) error {
	for _, field := range []struct {
		name  string
		value *string
		least int
		most  int
	}{
		{"conversation ID", &conversationID, 1, MaxIDLength},
		{"user ID", p.UserID, 0, MaxUserIDLength},
		{"title", p.Title, 0, MaxTitleLength},
		{"system prompt", p.SystemPrompt, 0, MaxSystemPromptLength},
	} {
		if field.value == nil {
			continue
		}
		if err := checkText(field.name, *field.value, field.least, field.most); err != nil {
			return invalidConversation(conversationID, err)
		}
	}
	for name := range p.MetadataMembers {
		if !utf8.ValidString(name) {
			return invalidConversation(conversationID, fmt.Errorf("the member %q of the metadata: its name is not UTF-8", name))
		}
	}
	members, err := jsonvalue.Marshal(p.MetadataMembers)
	if err != nil {
		return invalidConversation(conversationID, fmt.Errorf("the members of the metadata: %w", err))
	}
	for _, metadata := range []json.RawMessage{p.Metadata, members} {
		if err := checkMetadata(metadata); err != nil {
			return invalidConversation(conversationID, err)
		}
	}
	return nil
}

// checkMetadata checks an object, or the null with which a patch clears it.
func checkMetadata(metadata json.RawMessage) error {
	if err := checkMetadataSize(metadata); err != nil {
		return err
	}
	if string(metadata) == "null" {
		return nil
	}
	_, err := parseBody(metadata)
	if err == nil && len(metadata) > 0 && !jsonvalue.Survives(metadata) {
		err = errors.New("has a key twice, a number of too many digits, half a surrogate pair, or is nested too deeply: a cluster cannot store it exactly")
	}
	if err != nil {
		return fmt.Errorf("the metadata %w", err)
	}
	return nil
}

func checkMetadataSize(metadata json.RawMessage) error {
	if len(metadata) > MaxConversationMetadataBytes {
		return fmt.Errorf("the metadata has %d bytes: at most %d are allowed", len(metadata), MaxConversationMetadataBytes)
	}
	return nil
}

// ValidateFor returns an error that is ErrInvalid if the conversation ID or the summary must not be stored.
func (s Summary) ValidateFor(conversationID string) error {
	err := errors.Join(
		checkText("conversation ID", conversationID, 1, MaxIDLength),
		checkText("content", s.Content, 1, MaxSummaryLength),
	)
	switch year := s.CreatedAt.UTC().Year(); {
	case err != nil:
	case s.StartTurn < 0 || s.EndTurn <= s.StartTurn || s.EndTurn > math.MaxInt32:
		err = fmt.Errorf("the summary is of the turns from %d to before %d: these must be at least one, from 0 to %d", s.StartTurn, s.EndTurn, math.MaxInt32)
	case s.TokenCount < 0 || s.TokenCount > math.MaxInt32:
		err = fmt.Errorf("the summary has %d tokens: must be from 0 to %d", s.TokenCount, math.MaxInt32)
	case year < 0 || year > 9999:
		err = fmt.Errorf("a time is in the year %d: must be from 0 to 9999", year)
	}
	if err != nil {
		return invalidConversation(conversationID, err)
	}
	return nil
}

func invalidConversation(conversationID string, err error) error {
	return &Error{Code: CodeInvalid, ConversationID: conversationID, Message: fmt.Sprintf("invalid conversation %.100q", conversationID), Err: err}
}

func (s *Session) invalid(format string, args ...any) error {
	return &Error{Code: CodeInvalid, ResponseID: s.ResponseID, Message: "unable to save the turn", Err: fmt.Errorf(format, args...)}
}

// parseBody parses a body that is either empty or a JSON object.
func parseBody(raw []byte) (jsonvalue.Object, error) {
	object, err := jsonvalue.ParseObject(raw)
	if err == nil && len(raw) > 0 && (!object.Exists() || !utf8.Valid(raw)) {
		err = errors.New("must be a JSON object in UTF-8")
	}
	return object, err
}
