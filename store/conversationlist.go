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

	"github.com/catena-dev/catena/store/driver"
)

// List returns a page of the conversations of the namespace. Without options, it has the active ones, and the one that was created last is
// first.
//
// Conversations are sorted by a time and, within a second, by the bytes of their IDs. To read all pages, pass each ConversationList.Next as
// ConversationListOptions.After until it is empty. Conversations that are created or deleted meanwhile neither repeat nor hide others. One
// whose time, state or user changes meanwhile may be missed or repeated. A cursor of other options is ErrInvalid. A conversation that is
// deleted is missing in a list of descendants, and with it those that can only be reached through it.
//
// In a cluster, List returns what the operator's watch has delivered. A change of a moment ago may be missing unless
// ConversationListOptions.Version is set. LastActivityAt follows within some seconds, and so does UpdatedAt after a change that only removes
// something.
func (c *Conversations) List(ctx context.Context, options ConversationListOptions) (*ConversationList, error) {
	list, err := observe(c.store, "list_conversations", func() (*ConversationList, error) { return c.list(ctx, options) })
	return list, complete(err, "unable to list the conversations", "")
}

func (c *Conversations) list(ctx context.Context, options ConversationListOptions) (*ConversationList, error) {
	if err := options.Validate(); err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "unable to list the conversations", Err: err}
	}
	lister, err := driver.Optional[driver.ConversationLister](c.store.driver, "list conversations")
	if err != nil {
		return nil, err
	}
	options = options.WithDefaults()
	return driver.Retry(ctx, func() (*ConversationList, error) {
		return lister.ListConversations(ctx, c.store.namespace, options)
	})
}
