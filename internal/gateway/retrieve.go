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
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// retrieve returns a stored response as the client that created it received it.
func (g *Gateway) retrieve(w http.ResponseWriter, r *http.Request, c *call) error {
	if r.URL.Query().Get("stream") == "true" {
		return invalidRequest("stream", "unsupported_parameter", "Unsupported parameter: 'stream'. Only background responses can be streamed again.")
	}
	session, err := g.get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	response, err := g.showStored(r.Context(), c, session)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, response.String())
	return nil
}

// responseOf returns the response of a session. Other gateways may omit members from the body that the session contains as
// fields. They are added, so that the client gets a complete response.
func responseOf(s *store.Session) string {
	if gjson.GetBytes(s.Response, "id").Exists() {
		return jsonvalue.Text(s.Response)
	}
	response, err := parseObject(s.Response)
	if err != nil {
		response = &object{}
	}
	response.set("id", quote(s.ResponseID))
	response.set("previous_response_id", quoteOrNull(s.PreviousResponseID))
	response.setMissing("object", `"response"`)
	response.setMissing("status", quote(s.Status))
	response.setMissing("output", "[]")
	if !s.CreatedAt.IsZero() {
		response.setMissing("created_at", strconv.FormatInt(s.CreatedAt.Unix(), 10))
	}
	return response.String()
}

// delete deletes a response, even if it is unreadable. Later turns of its conversation remain, but cannot be continued.
func (g *Gateway) delete(w http.ResponseWriter, r *http.Request, c *call) error {
	id := r.PathValue("id")
	session, err := g.getWithoutBodies(r.Context(), c, id)
	if err != nil && !isUnreadable(err) {
		return getError(id, err)
	}
	if err == nil {
		if err := g.endBefore(r.Context(), c, session); err != nil {
			return err
		}
	}
	if err := c.store.Delete(r.Context(), id, store.DeleteOptions{}); err != nil {
		return storeError(err)
	}
	writeJSON(w, http.StatusOK, `{"id":`+quote(id)+`,"object":"response","deleted":true}`)
	return nil
}

// endBefore ends the conversation of which a turn is the last one with the turn before it. If the turn was just deleted, others could not tell
// its place from one that is reserved for a turn that is being created, and would wait. A turn that is added at the same moment goes with it:
// without its parent, it could not be continued.
func (g *Gateway) endBefore(ctx context.Context, c *call, session *store.Session) error {
	id := session.ConversationID
	if id == "" {
		return nil
	}
	conversation, err := getConversation(ctx, c, id)
	ends := false
	if err == nil {
		ends, err = g.endsAt(ctx, c, conversation.Head, session.ResponseID)
	}
	if ends {
		_, err = readObjects(ctx, c, func(ctx context.Context) (*store.Conversation, error) {
			return c.store.Conversations().RollbackFrom(ctx, id, session.ResponseID, session.PreviousResponseID)
		}, func(*store.Conversation) int64 { return 0 })
	}
	switch {
	case isTemporary(err):
		return storeError(err)
	case ends && conversation.State == store.ConversationActive && errors.Is(err, store.ErrConflict):
		return &apiError{
			status: http.StatusConflict, kind: typeInvalidRequest, code: string(store.CodeConflict), err: err,
			message: "The response before this one belongs to a conversation that is being deleted. Delete this one again after that.",
		}
	}
	return nil // otherwise, the conversation is archived or broken, or was deleted
}

// endsAt reports whether a turn is the last one of the conversation with a head. The head may be reserved for one that is being created.
func (g *Gateway) endsAt(ctx context.Context, c *call, head store.Head, id string) (bool, error) {
	if head.ResponseID == id || head.BaseResponseID != id {
		return head.ResponseID == id, nil
	}
	_, err := g.getWithoutBodies(ctx, c, head.ResponseID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return true, nil
	case isUnreadable(err):
		return false, nil
	}
	return false, err
}

// isUnreadable reports whether a turn exists, but its bodies are damaged or too large for the store or the gateway.
func isUnreadable(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.code == string(store.CodeTooLarge) || errors.Is(err, store.ErrUnreadable) || errors.Is(err, store.ErrTooLarge)
}

// get returns the session of a turn.
func (g *Gateway) get(ctx context.Context, c *call, id string) (*store.Session, error) {
	session, err := g.getSession(ctx, c, id)
	if err != nil {
		return nil, getError(id, err)
	}
	return session, nil
}

// getWithoutBodies is getSession without the bodies, unless the store cannot read a turn without them.
func (g *Gateway) getWithoutBodies(ctx context.Context, c *call, id string) (*store.Session, error) {
	session, err := readStored(ctx, c, func(ctx context.Context) (*store.Session, error) { return c.store.GetWithoutBodies(ctx, id) }, sessionBytes)
	if errors.Is(err, store.ErrUnsupported) {
		return g.getSession(ctx, c, id)
	}
	return session, err
}

// getSession is like get, but returns the store's error unchanged.
func (g *Gateway) getSession(ctx context.Context, c *call, id string) (*store.Session, error) {
	return readStored(ctx, c, func(ctx context.Context) (*store.Session, error) { return c.store.Get(ctx, id) }, sessionBytes)
}
