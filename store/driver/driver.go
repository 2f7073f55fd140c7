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

// Package driver defines the interface between package store and its storage implementations: the interface Store, the types
// that both packages share, and the registry of URL schemes.
//
// Gateways use package store, which re-exports the types. Only authors of drivers import this package. It makes no
// compatibility promise: the interface may gain methods in any release, so a driver is best kept next to the version of Catena
// that it is built with. Run package storetest's suite against it.
//
// Functionality beyond turns is not added to Store. It is a separate interface that a driver may implement. Package store
// looks it up with Optional, which returns an error with CodeUnsupported if the driver does not implement it, unless the
// interface documents otherwise.
package driver

import "context"

// Store stores turns. A namespace is a tenant: turns in one namespace cannot be read, continued or deleted through another.
// All methods are safe for concurrent use and honour their context.
//
// The caller, store.Store, has validated the session and the options, never passes an empty response ID, and makes no call
// after Close. It adds the operation and the response ID to errors, so a driver only returns what it knows: an *Error if one
// of the codes applies, with a Message only if it adds to the name of the failed operation, and otherwise any other error. The
// caller repeats a call whose error is marked with Again.
type Store interface {
	// Get returns the turn with a response ID, or an error that is ErrNotFound if it does not exist. The driver must not
	// keep references to the session that it returns.
	Get(ctx context.Context, namespace, responseID string) (*Session, error)

	// Save stores a turn completely or not at all, according to Decide, and returns its version. Once it has returned, the
	// turn resolves on every replica. The driver must neither change the session nor keep references to its bodies. The
	// session's times are in UTC and whole seconds. SaveOptions.ExpectedPreviousResponseID has been checked.
	Save(ctx context.Context, namespace string, session *Session, options SaveOptions) (version string, err error)

	// Resolve returns the history of a turn, or a page of it. See store.Store.Resolve for its guarantees.
	Resolve(ctx context.Context, namespace, responseID string, options ResolveOptions) (*History, error)

	// Delete removes a turn, and with DeleteOptions.Cascade its descendants. It is not an error if the turn does not exist.
	Delete(ctx context.Context, namespace, responseID string, options DeleteOptions) error

	// Close releases the driver's resources. It is called once, possibly while other calls are running.
	Close() error
}

// Lister is implemented by drivers that can list the turns of a conversation.
type Lister interface {
	// List returns a page of the turns of a conversation. See store.Store.List for its guarantees, and package
	// internal/sortedlist for the order and the cursors. The conversation ID and the options are valid, and the limit is set. With
	// ListOptions.History, see store.Conversations.Turns and history.PageTurns; only a driver that implements Conversations supports it.
	List(ctx context.Context, namespace, conversationID string, options ListOptions) (*TurnList, error)
}

// QuotaChecker is implemented by drivers whose namespaces may have quotas.
type QuotaChecker interface {
	// CheckQuota returns an error that is ErrQuotaExceeded if a quota of the namespace is exceeded, as far as this can be
	// determined without saving.
	CheckQuota(ctx context.Context, namespace string) error
}

// Pinger is implemented by drivers that can become unusable while the program runs. Without it, a store can be used until it is closed.
type Pinger interface {
	// Ping returns an error if a namespace cannot be read now. It makes one attempt, and its error is not marked with Again. See
	// store.Store.Ping, which sets a deadline.
	Ping(ctx context.Context, namespace string) error
}

// Checker is implemented by drivers that can be configured to use what belongs to others.
type Checker interface {
	// Check returns an error if that is the case. See store.Store.Check.
	Check(ctx context.Context) error
}

// Options are the options of store.Store that a driver determines.
type Options struct {
	// Namespace is the namespace of the store.
	Namespace string
	// MaxTurnBytes is the maximum size of request, response and metadata together. A larger turn is refused with
	// CodeTooLarge. 0 means no limit.
	MaxTurnBytes int
}

// Optional returns a driver as one of the optional interfaces. If the driver does not implement it, the error has
// CodeUnsupported and names the operation, such as "list a conversation".
func Optional[T any](d Store, operation string) (T, error) {
	t, ok := d.(T)
	if !ok {
		return t, &Error{Code: CodeUnsupported, Message: "this store does not support the operation: " + operation}
	}
	return t, nil
}
