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

package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// OpenAI's limits for a conversation: the items that can be added at a time, and the pairs of its metadata with their characters.
const (
	maxItems         = 20
	maxPairs         = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// createConversation creates a conversation, which may begin with items.
func (g *Gateway) createConversation(w http.ResponseWriter, r *http.Request, c *call) error {
	o, err := g.readObject(w, r, c)
	if err != nil {
		return err
	}
	if err := c.readKey(r, true); err != nil {
		return err
	}
	first := &turn{id: g.newResponseID(r, c), created: g.now()}
	created := &store.Conversation{ConversationID: "conv_" + strings.TrimPrefix(first.id, responsePrefix)}
	if created.Metadata, err = g.readMetadata(r.Context(), c, o); err != nil {
		return err
	}
	if items := o.raw("items"); !jsonvalue.IsNull(items) && !isEmptyList(items) {
		if first.request, err = g.parseFirst(r.Context(), c, created.ConversationID, first.id, items); err != nil {
			return err
		}
		created.Head.ResponseID = first.id
	}
	conversation, err := g.findConversation(r.Context(), c, created, first)
	if conversation == nil && err == nil {
		conversation, err = g.saveConversation(r.Context(), c, created, first)
	}
	if err != nil {
		return err
	}
	writeConversation(w, conversation)
	return nil
}

// isEmptyList reports whether a raw JSON value is a list without elements.
func isEmptyList(raw string) bool {
	rest, isList := strings.CutPrefix(raw, "[")
	return isList && strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), "]")
}

// parseFirst returns the items with which a new conversation begins as the input of a request, which is saved with a response ID.
func (g *Gateway) parseFirst(ctx context.Context, c *call, conversation, responseID, items string) (*createRequest, error) {
	q, err := g.parseItems(ctx, c, conversation, items)
	if err != nil {
		return nil, err
	}
	q.history = &store.History{}
	if c.idempotencyKey != "" {
		q.repeats = responseID
	}
	return q, g.prepareItems(ctx, c, q)
}

// findConversation returns the conversation that an earlier request with the same Idempotency-Key has created, or nil. It returns an error if
// that was another request, as far as the conversation and its first turn say.
func (g *Gateway) findConversation(ctx context.Context, c *call, created *store.Conversation, first *turn) (*store.Conversation, error) {
	if c.idempotencyKey == "" {
		return nil, nil
	}
	conversation, err := getConversation(ctx, c, created.ConversationID)
	switch {
	case errors.Is(err, store.ErrConversationNotFound):
		return nil, nil
	case err != nil:
		return nil, conversationFailed(created.ConversationID, err)
	}
	if err := g.checkMetadata(ctx, c, created, conversation); err != nil {
		return nil, err
	}
	if first.request == nil {
		return conversation, nil
	}
	if stored, err := g.isStored(ctx, c, first); !stored {
		return nil, cmp.Or[error](err, keyReused())
	}
	return conversation, nil
}

// saveConversation stores a new conversation. Its first turn, if it has one, is saved before, so that no client ever reads a partial conversation.
func (g *Gateway) saveConversation(ctx context.Context, c *call, created *store.Conversation, first *turn) (*store.Conversation, error) {
	if first.request != nil {
		if err := g.checkQuota(ctx, c, first.request); err != nil {
			return nil, err
		}
		if err := g.saveItems(ctx, c, first); err != nil {
			if c.idempotencyKey == "" {
				g.discard(ctx, c, created) // only the answer may have been lost
			}
			return nil, err
		}
	}
	conversation, err := readOne(ctx, c, func(ctx context.Context) (*store.Conversation, error) {
		return c.store.Conversations().Create(ctx, created)
	}, func(*store.Conversation) int64 { return 0 })
	switch {
	case err == nil:
		return conversation, nil
	case c.idempotencyKey == "":
		g.discard(ctx, c, created)
	case errors.Is(err, store.ErrConflict): // another request with the same key was faster
		if found, failure := g.findConversation(ctx, c, created, first); found != nil || failure != nil {
			return found, failure
		}
	}
	return nil, conversationFailed(created.ConversationID, err)
}

// discard deletes what may be stored of a conversation whose creation has failed: the conversation, which may exist if only the answer was lost,
// and then its turn, if it has one.
func (g *Gateway) discard(ctx context.Context, c *call, created *store.Conversation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.SaveTimeout)
	defer cancel()
	err := c.store.Conversations().Delete(ctx, created.ConversationID, store.DeleteConversationOptions{})
	if turn := created.Head.ResponseID; err == nil && turn != "" {
		err = c.store.Delete(ctx, turn, store.DeleteOptions{})
	}
	if err != nil {
		c.log.Error("unable to delete what is stored of a conversation that was not created", "conversationID", created.ConversationID, "error", err)
	}
}

// readObject reads the body of a request, which is a JSON object or empty.
func (g *Gateway) readObject(w http.ResponseWriter, r *http.Request, c *call) (*object, error) {
	body, err := g.readRequestBody(w, r, c)
	if err != nil || len(body) == 0 {
		return &object{}, err
	}
	return inTurn(r.Context(), g, c, len(body), func() (*object, error) {
		o, err := parseObject(body)
		if err != nil {
			return nil, invalidJSON(err)
		}
		return o, nil
	})
}

// readMetadata returns a conversation's metadata, or nil if the request leaves it out.
func (g *Gateway) readMetadata(ctx context.Context, c *call, o *object) (json.RawMessage, error) {
	raw := o.raw("metadata")
	return inTurn(ctx, g, c, len(raw), func() (json.RawMessage, error) { return parseMetadata(raw) })
}

// parseMetadata returns a conversation's metadata, or nil if it is null. It is written anew, because what a client escapes may take more bytes
// than a store allows.
func parseMetadata(raw string) (json.RawMessage, error) {
	if jsonvalue.IsNull(raw) {
		return nil, nil
	}
	if !jsonvalue.IsObject(raw) {
		return nil, invalidRequest("metadata", "invalid_type", "Invalid type for 'metadata': expected an object.")
	}
	if n := jsonvalue.Count(raw); n > maxPairs {
		return nil, invalidRequest("metadata", "object_above_max_properties",
			"Invalid 'metadata': too many properties. Expected an object with at most %d properties, but got an object with %d properties instead.", maxPairs, n)
	}
	pairs := &object{}
	for key, value := range jsonvalue.Elements(raw) {
		name := jsonvalue.Unquote(key)
		if err := checkPair(name, value); err != nil {
			return nil, err
		}
		pairs.members = append(pairs.members, member{name: name, key: quote(name), value: quote(jsonvalue.Unquote(value))})
	}
	if !jsonvalue.Survives(jsonvalue.Bytes(raw)) { // it is small
		return nil, invalidRequest("metadata", "invalid_value", "Invalid 'metadata': it contains a duplicate key, or half a surrogate pair.")
	}
	return json.RawMessage(pairs.String()), nil
}

// checkPair checks a pair of the metadata, whose value is raw JSON.
func checkPair(name, value string) error {
	param := "metadata." + firstBytes(name)
	if n := utf8.RuneCountInString(name); n > maxMetadataKey {
		return invalidRequest(param, "property_name_above_max_length",
			"Invalid property name in 'metadata': '%s' is too long. Expected a string with maximum length %d, but got a string with length %d instead.",
			firstBytes(name), maxMetadataKey, n)
	}
	if !jsonvalue.IsString(value) {
		return invalidRequest(param, "invalid_type", "Invalid type for '%s': expected a string.", param)
	}
	if n := utf8.RuneCountInString(jsonvalue.Unquote(value)); n > maxMetadataValue {
		return invalidRequest(param, "string_above_max_length",
			"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", param, maxMetadataValue, n)
	}
	return nil
}

func (g *Gateway) retrieveConversation(w http.ResponseWriter, r *http.Request, c *call) error {
	conversation, err := getConversation(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return conversationFailed(r.PathValue("id"), err)
	}
	if err := c.hold(2 * int64(len(conversation.Metadata))); err != nil { // the answer, and the copy that is written
		return err
	}
	writeConversation(w, conversation)
	return nil
}

// updateConversation replaces the metadata of a conversation.
func (g *Gateway) updateConversation(w http.ResponseWriter, r *http.Request, c *call) error {
	o, err := g.readObject(w, r, c)
	if err != nil {
		return err
	}
	if !o.has("metadata") {
		return missingParameter("metadata")
	}
	metadata, err := g.readMetadata(r.Context(), c, o)
	if err != nil {
		return err
	}
	if metadata == nil {
		metadata = json.RawMessage("null")
	}
	conversation, err := readObjects(r.Context(), c, func(ctx context.Context) (*store.Conversation, error) {
		return c.store.Conversations().Patch(ctx, r.PathValue("id"), store.ConversationPatch{Metadata: metadata})
	}, func(*store.Conversation) int64 { return 0 }) // the metadata is replaced even if there is no memory for the answer
	if err != nil {
		return conversationFailed(r.PathValue("id"), err)
	}
	writeConversation(w, conversation)
	return nil
}

func missingParameter(name string) *apiError {
	return invalidRequest(name, "missing_required_parameter", "Missing required parameter: '%s'.", name)
}

// deleteConversation deletes a conversation. Its turns stay, and can still be reached by their response IDs.
func (g *Gateway) deleteConversation(w http.ResponseWriter, r *http.Request, c *call) error {
	id := r.PathValue("id")
	if _, err := getConversation(r.Context(), c, id); err != nil {
		return conversationFailed(id, err)
	}
	_, err := readObjects(r.Context(), c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.store.Conversations().Delete(ctx, id, store.DeleteConversationOptions{})
	}, func(struct{}) int64 { return 0 })
	if err != nil {
		return conversationFailed(id, err)
	}
	writeJSON(w, http.StatusOK, `{"id":`+quote(id)+`,"object":"conversation.deleted","deleted":true}`)
	return nil
}

// getConversation reads a conversation. Other programs can store much more than OpenAI's clients in one.
func getConversation(ctx context.Context, c *call, id string) (*store.Conversation, error) {
	return readStored(ctx, c, func(ctx context.Context) (*store.Conversation, error) { return c.store.Conversations().Get(ctx, id) }, conversationBytes)
}

// conversationBytes returns the memory of a conversation.
func conversationBytes(c *store.Conversation) int64 {
	return int64(len(c.Metadata)+len(c.SystemPrompt)) + hiddenItemBytes*int64(len(c.HiddenItems))
}

// hiddenItemBytes is more than the memory of a hidden item usually is.
const hiddenItemBytes = 128

// writeConversation responds with a conversation as OpenAI describes it.
func writeConversation(w http.ResponseWriter, conversation *store.Conversation) {
	writeJSON(w, http.StatusOK, fmt.Sprintf(`{"id":%s,"object":"conversation","created_at":%d,"metadata":%s}`,
		quote(conversation.ConversationID), conversation.CreatedAt.Unix(), shownMetadata(conversation)))
}

// shownMetadata returns the metadata of a conversation as OpenAI describes it. A value that is not a string, which no gateway stores, is shown as
// its JSON in a string.
func shownMetadata(conversation *store.Conversation) string {
	metadata := jsonvalue.Text(metadataOf(conversation))
	var b strings.Builder
	b.Grow(len(metadata))
	separator := "{"
	for key, value := range jsonvalue.Elements(metadata) {
		if !jsonvalue.IsString(value) {
			value = quote(value)
		}
		b.WriteString(separator + key + ":" + value)
		separator = ","
	}
	if separator == "{" {
		return "{}"
	}
	b.WriteString("}")
	return b.String()
}

// checkMetadata returns an error unless two conversations have the same metadata.
func (g *Gateway) checkMetadata(ctx context.Context, c *call, a, b *store.Conversation) error {
	same, err := inTurn(ctx, g, c, len(b.Metadata), func() (bool, error) { return jsonvalue.Equal(metadataOf(a), metadataOf(b)), nil })
	if err == nil && !same {
		err = keyReused()
	}
	return err
}

// metadataOf returns the metadata of a conversation, which is an empty object if it has none.
func metadataOf(conversation *store.Conversation) json.RawMessage {
	if len(conversation.Metadata) == 0 {
		return json.RawMessage("{}")
	}
	return conversation.Metadata
}
