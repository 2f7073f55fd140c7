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
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
)

// The values of Session.Status that Catena interprets. They mirror the status of OpenAI's Response object; any other string is
// stored unchanged and treated as not completed.
const (
	StatusQueued     = chain.StatusQueued     // "queued"
	StatusInProgress = chain.StatusInProgress // "in_progress"
	StatusCompleted  = chain.StatusCompleted  // "completed"
	StatusIncomplete = chain.StatusIncomplete // "incomplete"
	StatusFailed     = chain.StatusFailed     // "failed"
	StatusCancelled  = chain.StatusCancelled  // "cancelled"
)

// Session is one stored turn: its request, its response, and the ID of the previous turn.
type Session struct {
	// ResponseID is the ID that later requests use as previous_response_id: 1 to 512 characters. It cannot change.
	ResponseID string
	// PreviousResponseID is the parent, empty for a root. It need not exist yet, must not be the turn itself, and cannot change.
	PreviousResponseID string
	// ConversationID is the ID of the OpenAI conversation to which the gateway assigns the turn, or empty. List selects by it. When a Conversation
	// is deleted with its turns, these are the turns with its ID that nothing else needs. Otherwise, Catena does not interpret it.
	ConversationID string
	// CreatedAt and CompletedAt are times of the response, to the second; zero if unknown.
	CreatedAt, CompletedAt time.Time
	// Status is the status of the response, 1 to 64 characters. Only a completed turn can be used as context or, with ContinueIncomplete, an
	// incomplete one.
	Status string

	// Request and Response are the bodies as in the Responses API, and Metadata is any data that the gateway stores with them:
	// JSON objects, or nil. A store preserves the JSON value; those of this module preserve every byte.
	Request, Response, Metadata json.RawMessage

	// Immutable prevents the turn from ever being overwritten.
	Immutable bool

	// Version is the version of the stored turn, set by Get and Save. It changes with every overwrite, and may change with
	// internal writes of the store. If it is set on an overwrite, it must still be current.
	Version string
}

// Model returns the model of the request, or the empty string if it has none.
func (s *Session) Model() string { return member(s.Request, "model").String() }

// Instructions returns the instructions of the request, or the empty string if it has none.
func (s *Session) Instructions() string { return member(s.Request, "instructions").String() }

// Input returns the input of the request, a JSON string or list, or nil if it has none.
func (s *Session) Input() json.RawMessage { return raw(member(s.Request, "input")) }

// Tools returns the tools of the request, a JSON list, or nil if it has none.
func (s *Session) Tools() json.RawMessage { return raw(member(s.Request, "tools")) }

// Output returns the output items of the response as JSON objects.
func (s *Session) Output() []json.RawMessage {
	var items []json.RawMessage
	for _, item := range jsonvalue.Elements(member(s.Response, "output").Raw) {
		items = append(items, json.RawMessage(item))
	}
	return items
}

// OutputText returns the text of the output: all output_text parts of its messages, concatenated.
func (s *Session) OutputText() string {
	var text strings.Builder
	for _, part := range member(s.Response, "output").Get(`#(type=="message")#.content|@flatten|#(type=="output_text")#.text`).Array() {
		text.WriteString(part.String())
	}
	return text.String()
}

// Usage is the number of tokens that a turn used.
type Usage struct {
	InputTokens, OutputTokens, TotalTokens int64
}

// Usage returns the usage of the response, or zero if it has none.
func (s *Session) Usage() Usage {
	usage := member(s.Response, "usage")
	return Usage{
		InputTokens:  usage.Get("input_tokens").Int(),
		OutputTokens: usage.Get("output_tokens").Int(),
		TotalTokens:  usage.Get("total_tokens").Int(),
	}
}

// SameContent reports whether saving either session stores the same turn: times are compared to the second, bodies by their
// JSON value, and Version is ignored. A body that a custom resource cannot preserve, because a number has too many digits or a
// key appears twice, is compared byte by byte.
func (s *Session) SameContent(other *Session) bool {
	return s.ResponseID == other.ResponseID && s.PreviousResponseID == other.PreviousResponseID &&
		s.ConversationID == other.ConversationID && s.Status == other.Status && s.Immutable == other.Immutable &&
		s.CreatedAt.Truncate(time.Second).Equal(other.CreatedAt.Truncate(time.Second)) &&
		s.CompletedAt.Truncate(time.Second).Equal(other.CompletedAt.Truncate(time.Second)) &&
		jsonvalue.Equal(s.Request, other.Request) && jsonvalue.Equal(s.Response, other.Response) && jsonvalue.Equal(s.Metadata, other.Metadata)
}

// Clone returns a deep copy of the session.
func (s *Session) Clone() *Session {
	clone := *s
	for _, raw := range []*json.RawMessage{&clone.Request, &clone.Response, &clone.Metadata} {
		*raw = append(json.RawMessage(nil), *raw...)
	}
	return &clone
}

// member returns a member of a body, or null if it has none.
func member(body json.RawMessage, key string) gjson.Result {
	return jsonvalue.ValidObject(body).Members(key)[0]
}

func raw(value gjson.Result) json.RawMessage {
	if value.Type == gjson.Null {
		return nil
	}
	return json.RawMessage(value.Raw)
}
