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

// Package gateway answers requests of the Responses API and keeps the conversations in Catena.
package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/catena-dev/catena/store"
)

// Engine answers a request whose input is the whole conversation.
type Engine func(ctx context.Context, input []json.RawMessage) (responseID string, output json.RawMessage, err error)

// Gateway continues conversations.
type Gateway struct {
	Turns  *store.Store
	Engine Engine
}

// Respond answers a message that follows the response previous, which is empty for the first message of a conversation. It
// saves the turn and returns its response ID.
func (g *Gateway) Respond(ctx context.Context, previous, message string) (string, error) {
	history, err := g.Turns.Resolve(ctx, previous, store.ResolveOptions{})
	if err != nil {
		return "", fmt.Errorf("unable to continue %q: %w", previous, err)
	}
	input, err := json.Marshal([]map[string]string{{"role": "user", "content": message}})
	if err != nil {
		return "", err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(input, &items); err != nil {
		return "", err
	}
	id, output, err := g.Engine(ctx, append(history.Items, items...))
	if err != nil {
		return "", err
	}
	return id, g.Turns.Save(ctx, &store.Session{
		ResponseID:         id,
		PreviousResponseID: previous,
		Status:             store.StatusCompleted,
		Request:            fmt.Appendf(nil, `{"input":%s}`, input),
		Response:           fmt.Appendf(nil, `{"id":%q,"output":%s}`, id, output),
	}, store.SaveOptions{})
}
