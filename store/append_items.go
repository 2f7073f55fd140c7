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

package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store/driver"
)

// AppendItemsOptions are the options of Conversations.AppendItems.
type AppendItemsOptions struct {
	// OperationID makes it safe to repeat the call: in a conversation, items are appended once for each operation ID. Without it, each call
	// appends them.
	OperationID string
	// ExpectedPreviousResponseID and Reservation are those of AppendOptions.
	ExpectedPreviousResponseID *string
	Reservation                time.Duration
}

// AppendItems appends input items, which are JSON objects, to a conversation without a model call, and returns the turn that has them. They
// become the input of a completed turn of their own, which has no response. Its response ID is random, or follows from the conversation ID and
// AppendItemsOptions.OperationID.
//
// Everything else is as for Append: the same items with the same operation ID are a success that changes nothing, and other items are
// ErrConflict. The error is ErrInvalid if there are no items.
func (c *Conversations) AppendItems(
	ctx context.Context, conversationID string, items []json.RawMessage, options AppendItemsOptions,
) (*Session, error) {
	return conversationCall(c, "append_items", conversationID, func(d driver.Conversations) (*Session, error) {
		session, err := itemsTurn(conversationID, items, options.OperationID)
		if err != nil {
			return nil, err
		}
		of := AppendOptions{ExpectedPreviousResponseID: options.ExpectedPreviousResponseID, Reservation: options.Reservation}
		_, err = c.append(ctx, d, conversationID, session, of)
		if errors.Is(err, ErrConflict) && options.OperationID != "" && c.adoptTimes(ctx, session) {
			_, err = c.append(ctx, d, conversationID, session, of)
		}
		if err != nil {
			return nil, err
		}
		return session, nil
	})
}

// adoptTimes sets the times of a turn to those that it was stored with, and reports whether that has changed them.
func (c *Conversations) adoptTimes(ctx context.Context, session *Session) bool {
	stored, err := c.store.getWithoutBodies(ctx, session.ResponseID)
	if err != nil || stored.CreatedAt.Equal(session.CreatedAt) {
		return false
	}
	session.CreatedAt, session.CompletedAt = stored.CreatedAt, stored.CompletedAt
	return true
}

// itemsTurn returns the turn that has nothing but items.
func itemsTurn(conversationID string, items []json.RawMessage, operationID string) (*Session, error) {
	if len(items) == 0 {
		return nil, &Error{Code: CodeInvalid, Message: "there are no items to append"}
	}
	request, err := jsonvalue.Marshal(map[string][]json.RawMessage{"input": items})
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "the items are not JSON", Err: err}
	}
	now := time.Now().UTC().Truncate(time.Second)
	return &Session{
		ResponseID: itemsID(conversationID, operationID), Status: StatusCompleted, CreatedAt: now, CompletedAt: now, Request: request,
	}, nil
}

// itemsID returns the response ID of a turn of items.
func itemsID(conversationID, operationID string) string {
	if operationID == "" {
		return "resp_" + strings.ToLower(rand.Text())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", conversationID, operationID))
	return fmt.Sprintf("resp_%x", sum[:24])
}
