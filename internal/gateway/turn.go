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
	"strconv"
	"time"

	"github.com/catena-dev/catena/store"
)

// turn is a turn in the making.
type turn struct {
	// id is the gateway's own: engines count theirs, and begin again when they are restarted. It is lower-case, so that
	// the name of the object in a cluster is it and not its hash.
	id      string
	request *request
	created time.Time
}

// claim makes a response of the upstream that of the turn.
func (t *turn) claim(response *object) {
	response.set("id", quote(t.id))
	response.set("previous_response_id", quoteOrNull(t.request.previous))
	response.set("store", strconv.FormatBool(t.request.store))
}

// empty returns a response without output, for a turn of which the upstream has told nothing.
func (t *turn) empty() *object {
	response := &object{}
	response.set("id", quote(t.id))
	response.set("object", `"response"`)
	response.set("created_at", strconv.FormatInt(t.created.Unix(), 10))
	response.set("model", quoteOrNull(t.request.object.get("model").Str))
	response.set("output", "[]")
	t.claim(response)
	return response
}

// session returns what is saved of the turn: the client's request as it came, and the response as the client sees it.
func (t *turn) session(response *object, now time.Time) *store.Session {
	s := &store.Session{
		ResponseID:         t.id,
		PreviousResponseID: t.request.previous,
		Status:             response.get("status").String(),
		CreatedAt:          timeMember(response, "created_at"),
		CompletedAt:        timeMember(response, "completed_at"),
		Request:            t.request.body,
		Response:           []byte(response.String()),
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = seconds(t.created)
	}
	if s.CompletedAt.IsZero() && s.Status == store.StatusCompleted {
		s.CompletedAt = seconds(now)
	}
	return s
}

// endOfTime is the year 10000 in seconds: times after it cannot be written.
const endOfTime = 253402300800

// timeMember returns the time that a response has as seconds, zero where it has none.
func timeMember(response *object, name string) time.Time {
	if value := response.get(name).Float(); value >= 1 && value < endOfTime {
		return time.Unix(int64(value), 0).UTC()
	}
	return time.Time{}
}

func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// save saves a turn, unless the client wants it not to be. Once it has begun, it does not depend on the client. The store
// tries again where that can help. One that does not answer in time cannot be reached.
func (g *Gateway) save(ctx context.Context, c *call, t *turn, response *object) error {
	if !t.request.store {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.SaveTimeout)
	defer cancel()
	err := c.store.Save(ctx, t.session(response, g.now()), store.SaveOptions{ExpectedPreviousResponseID: &t.request.previous})
	if errors.Is(err, context.DeadlineExceeded) {
		err = &store.Error{Code: store.CodeUnreachable, ResponseID: t.id, Retryable: true, Err: err}
	}
	if err != nil {
		g.metrics.saveFailed(err)
	}
	return err
}
