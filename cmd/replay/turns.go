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

package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/catena-dev/catena/internal/recorded"
	"github.com/catena-dev/catena/store"
)

// identities assigns response IDs to the turns of a run.
type identities struct {
	run  string
	used map[string]bool
}

func newIdentities() *identities {
	return &identities{run: strings.ToLower(rand.Text()[:8]), used: map[string]bool{}}
}

// choose returns the recorded ID, or another one if it is empty or has been used in this run.
func (i *identities) choose(id string, line int) string {
	if id == "" || i.used[id] {
		id = fmt.Sprintf("%s_%d", i.other(cmp.Or(id, "resp")), line)
	}
	i.used[id] = true
	return id
}

// other returns an ID for a turn whose recorded ID is taken in the namespace.
func (i *identities) other(id string) string { return id + "_" + i.run }

// sessionOf returns the session of a turn.
func sessionOf(t *recorded.Turn, id, previous string) (*store.Session, error) {
	response := struct {
		Status      string   `json:"status"`
		CreatedAt   *float64 `json:"created_at"`
		CompletedAt *float64 `json:"completed_at"`
	}{}
	if err := json.Unmarshal(t.Response, &response); err != nil {
		return nil, fmt.Errorf("line %d has an invalid response: %w", t.Line, err)
	}
	return &store.Session{
		ResponseID:         id,
		PreviousResponseID: previous,
		Status:             cmp.Or(response.Status, store.StatusCompleted),
		CreatedAt:          unixTime(response.CreatedAt),
		CompletedAt:        unixTime(response.CompletedAt),
		Request:            t.Request,
		Response:           t.Response,
	}, nil
}

func unixTime(seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return time.Unix(int64(*seconds), 0)
}

// recordedID returns the ID of the response, or the empty string if it has none.
func recordedID(t *recorded.Turn) string {
	response := struct {
		ID string `json:"id"`
	}{}
	_ = json.Unmarshal(t.Response, &response) // an ID that is not a string is treated as missing
	return response.ID
}
