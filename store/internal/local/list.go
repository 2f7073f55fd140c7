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

package local

import (
	"github.com/catena-dev/catena/internal/turnlist"
	"github.com/catena-dev/catena/store/driver"
)

// List returns a page of a list, as driver.Lister.List does. find returns up to limit turns that follow a position, in the order
// of the query.
func List(
	namespace, conversationID string, options driver.ListOptions, find func(q turnlist.Query, limit int) ([]driver.TurnInfo, error),
) (*driver.TurnList, error) {
	q, err := turnlist.New(namespace, conversationID, options)
	if err != nil {
		return nil, &driver.Error{Code: driver.CodeInvalid, Message: "invalid cursor", Err: err}
	}
	found, err := find(q, q.Limit+1)
	if err != nil {
		return nil, err
	}
	list := &driver.TurnList{}
	list.Turns, list.Next = turnlist.Cut(q, found, func(t driver.TurnInfo) turnlist.Position {
		return turnlist.PositionOf(t.CreatedAt, t.ResponseID)
	})
	return list, nil
}
