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

// Package store stores the turns of the OpenAI Responses API for gateways: a turn is saved under its response ID, and a later
// request with that ID as previous_response_id gets the whole history as one list of input items.
//
// There are three kinds of stores with the same behaviour: store/kube stores turns as ResponseSessions in a Kubernetes
// cluster, store/sqlite in a file, and store/memory in the memory of the process. Open selects the kind by URL. A program
// links only the kinds that it imports.
//
// Package store/driver is for authors of other kinds. It also documents the fields and methods of the types that are aliases
// here, such as Session: see go doc ./store/driver Session.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/requestid"
	"github.com/catena-dev/catena/store/driver"
)

// Store stores turns. It is bound to one namespace, which is the tenant: a chain never leaves it, and turns in other
// namespaces cannot be read, continued or deleted. All methods are safe for concurrent use, honour their context's deadline,
// and return an *Error if one of the codes of this package applies. If the store is temporarily unreachable, all
// except CheckQuota, Check and Ping retry for a few seconds.
type Store struct {
	*shared
	namespace string
	owner     bool // Close releases the shared state
}

// shared is the state that the stores of all namespaces share.
type shared struct {
	driver       driver.Store
	maxTurnBytes int
	metrics      *prometheus.HistogramVec
	// observations are those of Conversations, by conversation.
	observations *fair.Cache[conversationKey, observation]
	closed       atomic.Bool
}

// Open opens the store for a URL. Its scheme selects the driver, whose package must be imported, with the blank identifier if
// it is not used otherwise:
//
//	memory:                      in the process (store/memory)
//	sqlite:turns.db              in a file with a relative path (store/sqlite)
//	sqlite:/var/lib/gw/turns.db  in a file with an absolute path
//	kube:                        in a Kubernetes cluster (store/kube, which documents more parameters)
//
// Each accepts ?namespace=NAME. Without it, the namespace is DefaultNamespace, or for kube: the one of the kubeconfig or
// the Pod. Errors do not repeat the URL, which may contain a password.
//
// Close the store when it is no longer needed.
func Open(ctx context.Context, url string) (*Store, error) {
	d, options, err := driver.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return New(d, options), nil
}

// New returns a store for a driver. Only driver packages need it.
func New(d driver.Store, options driver.Options) *Store {
	return &Store{
		shared: &shared{
			driver: d, maxTurnBytes: options.MaxTurnBytes, metrics: newMetrics(),
			observations: fair.NewCache[conversationKey, observation](maxObservations),
		},
		namespace: options.Namespace,
		owner:     true,
	}
}

// Namespace returns the store's namespace.
func (s *Store) Namespace() string { return s.namespace }

// InNamespace returns a store for another namespace. In a cluster the namespace must exist. The returned store shares the
// connections, the metrics and the lifetime of this one: closing it has no effect.
func (s *Store) InNamespace(namespace string) *Store {
	return &Store{shared: s.shared, namespace: namespace}
}

// Collector returns the metrics of the store and of all stores made from it with InNamespace, for a Prometheus registry:
// catena_store_operation_seconds, a histogram by operation and code. A program that opens several stores registers each with
// prometheus.WrapRegistererWith and a distinct label.
func (s *Store) Collector() prometheus.Collector { return s.metrics }

// WithRequestID returns a context whose calls of a Store belong to the request with an ID, such as a client's X-Request-Id: the
// operator logs it with the histories that it returns, and with those that it cannot. An ID that does not have from 1 to 64 letters,
// digits, dots, hyphens and underscores is ignored.
func WithRequestID(ctx context.Context, id string) context.Context {
	return requestid.NewContext(ctx, id)
}

// Close releases the store's resources. The store cannot be used afterwards. Close may be called more than once.
func (s *Store) Close() error {
	if !s.owner || s.closed.Swap(true) {
		return nil
	}
	return s.driver.Close()
}

// Get returns the turn with a response ID, or an error that is ErrNotFound if it does not exist. The caller may change the
// returned session without changing what is stored.
func (s *Store) Get(ctx context.Context, responseID string) (*Session, error) {
	return call(s, "get", responseID, func() (*Session, error) {
		if responseID == "" {
			return nil, driver.NotFound(responseID)
		}
		return driver.Retry(ctx, func() (*Session, error) { return s.driver.Get(ctx, s.namespace, responseID) })
	})
}

// GetWithoutBodies returns the turn with a response ID as Get does, but without its request, response and metadata, which need not be readable. The
// error is ErrUnsupported if the kind of store has no conversations.
func (s *Store) GetWithoutBodies(ctx context.Context, responseID string) (*Session, error) {
	return call(s, "get", responseID, func() (*Session, error) {
		if responseID == "" {
			return nil, driver.NotFound(responseID)
		}
		return s.getWithoutBodies(ctx, responseID)
	})
}

func (s *Store) getWithoutBodies(ctx context.Context, responseID string) (*Session, error) {
	d, err := driver.Optional[driver.Conversations](s.driver, "get a turn without its bodies")
	if err != nil {
		return nil, err
	}
	return driver.Retry(ctx, func() (*Session, error) { return d.GetWithoutBodies(ctx, s.namespace, responseID) })
}

// Save stores a turn completely or not at all. Once it has returned, the turn resolves on every replica.
//
// The checks run in this order: the session itself (ErrInvalid, ErrTooLarge), SaveOptions.ExpectedPreviousResponseID
// (ErrConflict), and whether the response ID is taken (ErrConflict, unless SaveOptions.Overwrite is set). Saving a turn that
// is already stored with the same content, as defined by Session.SameContent, is a success and not a conflict, so that a save
// whose response was lost can be repeated. Neither the existence of the parent nor its status is checked.
//
// On success, Save sets session.Version and changes nothing else in the session.
func (s *Store) Save(ctx context.Context, session *Session, options SaveOptions) error {
	version, err := call(s, "save", session.ResponseID, func() (string, error) {
		bytes := len(session.Request) + len(session.Response) + len(session.Metadata)
		next, err := metered.Processed(ctx, bytes, func() (*Session, error) { return s.prepare(session, options) })
		if err != nil {
			return "", err
		}
		return driver.Retry(ctx, func() (string, error) { return s.driver.Save(ctx, s.namespace, next, options) })
	})
	if err != nil {
		return err
	}
	session.Version = version
	return nil
}

// prepare returns the session to pass to the driver, or an error if it must not be saved.
func (s *Store) prepare(session *Session, options SaveOptions) (*Session, error) {
	if err := session.Validate(); err != nil {
		return nil, err
	}
	if size := len(session.Request) + len(session.Response) + len(session.Metadata); s.maxTurnBytes > 0 && size > s.maxTurnBytes {
		return nil, &Error{
			Code: CodeTooLarge, ResponseID: session.ResponseID,
			Message: fmt.Sprintf("response %q has %d bytes: must be at most %d", session.ResponseID, size, s.maxTurnBytes),
		}
	}
	if expected := options.ExpectedPreviousResponseID; expected != nil && *expected != session.PreviousResponseID {
		return nil, &Error{
			Code: CodeConflict, ResponseID: session.ResponseID, PreviousResponseID: session.PreviousResponseID,
			Message: fmt.Sprintf("the previous response ID of %q is %q, not %q as expected", session.ResponseID, session.PreviousResponseID, *expected),
		}
	}
	next := *session
	for _, at := range []*time.Time{&next.CreatedAt, &next.CompletedAt} {
		*at = at.UTC().Truncate(time.Second)
	}
	return &next, nil
}

// Resolve returns the history of a turn, or a page of it. Without a limit it returns the whole history or an error, never a
// partial history: ErrNotFound, ErrCycleDetected, ErrDepthExceeded, ErrUnavailable or ErrUnreadable. If several apply, it
// returns the one nearest to the requested turn; at the same turn, the depth has precedence. The history of the empty response
// ID is empty.
func (s *Store) Resolve(ctx context.Context, responseID string, options ResolveOptions) (*History, error) {
	return call(s, "resolve", responseID, func() (*History, error) {
		return s.resolve(ctx, responseID, options)
	})
}

func (s *Store) resolve(ctx context.Context, responseID string, options ResolveOptions) (*History, error) {
	if err := options.Validate(); err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "invalid options", Err: err}
	}
	if responseID == "" {
		if options.After != "" {
			return nil, &Error{Code: CodeInvalid, Message: "invalid cursor: the history of the empty response ID has no pages"}
		}
		return &History{}, nil
	}
	return driver.Retry(ctx, func() (*History, error) { return s.driver.Resolve(ctx, s.namespace, responseID, options) })
}

// List returns a page of the turns of a conversation: those with this Session.ConversationID, or with ListOptions.History those of the history
// of the stored conversation, as Conversations.Turns does. A page has the turns without their
// bodies, which Get returns. If no turn belongs to the conversation, the page is empty.
//
// Turns are sorted by Session.CreatedAt and, within a second, by the bytes of their response IDs. A turn without a creation time
// is sorted by the zero time.Time. To read all pages, pass each TurnList.Next as ListOptions.After until it is empty. Turns that
// are saved or deleted meanwhile neither repeat nor hide others. A turn whose conversation or creation time changes meanwhile may
// be missed or repeated.
//
// In a cluster, List returns what the operator's watch has delivered. A change of a moment ago may be missing unless
// ListOptions.Version is set.
func (s *Store) List(ctx context.Context, conversationID string, options ListOptions) (*TurnList, error) {
	list, err := observe(s, "list", func() (*TurnList, error) { return s.list(ctx, conversationID, options) })
	return list, complete(err, fmt.Sprintf("unable to list conversation %.100q", conversationID), "")
}

func (s *Store) list(ctx context.Context, conversationID string, options ListOptions) (*TurnList, error) {
	if err := options.ValidateFor(conversationID); err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "unable to list the conversation", Err: err}
	}
	lister, err := driver.Optional[driver.Lister](s.driver, "list a conversation")
	if err != nil {
		return nil, err
	}
	if options.History {
		if _, err := driver.Optional[driver.Conversations](s.driver, "store conversations"); err != nil {
			return nil, err
		}
	}
	options.Limit = cmp.Or(options.Limit, DefaultListLimit)
	return driver.Retry(ctx, func() (*TurnList, error) { return lister.List(ctx, s.namespace, conversationID, options) })
}

// Delete removes a turn. Its descendants stay, but no longer resolve, unless DeleteOptions.Cascade is set. It is not an
// error if the turn does not exist.
func (s *Store) Delete(ctx context.Context, responseID string, options DeleteOptions) error {
	_, err := call(s, "delete", responseID, func() (struct{}, error) {
		if responseID == "" {
			return struct{}{}, nil
		}
		return driver.Retry(ctx, func() (struct{}, error) {
			return struct{}{}, s.driver.Delete(ctx, s.namespace, responseID, options)
		})
	})
	return err
}

// CheckQuota returns an error that is ErrQuotaExceeded if the namespace has reached a quota, so that Save would be rejected:
// call it before running a model for a turn that is to be saved. ErrUnsupported indicates a kind of store without quotas.
//
// In a cluster it reads the namespace's SessionQuotas, once, and does not retry. Their usage is some seconds old, so the
// result can be cached for a second. ResourceQuotas are not considered.
func (s *Store) CheckQuota(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	checker, err := driver.Optional[driver.QuotaChecker](s.driver, "check a quota")
	if err != nil {
		return err
	}
	return checker.CheckQuota(ctx, s.namespace)
}

// Check returns an error if the store must not be used as it is configured: in a cluster, if its bucket belongs to another
// cluster. Call it when a program starts, because Open contacts nothing, and Save fails only for the first turn that is large
// enough for the bucket. An error for which IsRetryable is true indicates that this could not be determined, because a server
// did not respond or no operator has opened the bucket yet: a program should log it, and serve. Check takes at most 10 seconds.
func (s *Store) Check(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	if checker, ok := s.driver.(driver.Checker); ok {
		return checker.Check(ctx)
	}
	return nil
}

// errClosed is the error for a store that is used after Close.
var errClosed = errors.New("the store is closed")

// call runs an operation on a turn, and completes the error. See observe.
func call[T any](s *Store, operation, responseID string, do func() (T, error)) (T, error) {
	result, err := observe(s, operation, do)
	return result, complete(err, fmt.Sprintf("unable to %s response %q", operation, responseID), responseID)
}

// observe runs an operation: it returns an error if the store is closed, and records the result.
func observe[T any](s *Store, operation string, do func() (T, error)) (result T, err error) {
	start := time.Now()
	if s.closed.Load() {
		err = errClosed
	} else {
		result, err = do()
	}
	s.metrics.WithLabelValues(operation, codeOf(err)).Observe(time.Since(start).Seconds())
	return result, err
}

// complete adds a message, which describes what failed, and the turn to the error of a driver if they are missing.
func complete(err error, message, responseID string) error {
	if err == nil {
		return nil
	}
	e, ok := err.(*Error) //nolint:errorlint // what wraps an *Error is not one
	if !ok {
		return fmt.Errorf("%s: %w", message, err)
	}
	if e.Message != "" {
		return err
	}
	completed := *e
	completed.Message = message
	if completed.ResponseID == "" {
		completed.ResponseID = responseID
	}
	return &completed
}
