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

// Package adk keeps the sessions of Google's Agent Development Kit (ADK) in a Catena store.
//
// A session is a conversation, and each of its events is a turn, with the event as its only input item. So everything that Catena
// offers for conversations holds for sessions: they can be seen with kubectl, are isolated by namespace, and are the same on every replica.
package adk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/catena-dev/catena/store"
)

// NewService returns a service that keeps sessions in the namespace of a store, which must be able to store conversations. It is safe for
// concurrent use, and does not close the store.
//
// Errors wrap those of the store. AppendEvent with a handle of a session that has got another event meanwhile is a store.ErrConflict: get
// the session again. Appending an event again, after an error, stores it once, because its ID identifies it within the session.
//
// The names of app, user and session have at most about 490 bytes together, after url.QueryEscape of each. The state of an app, and that of a user,
// have at most 64 KiB. A session can have 10,000 events; in a cluster, the operator's --max-depth-limit applies.
func NewService(s *store.Store) session.Service {
	return &service{store: s, conversations: s.Conversations()}
}

type service struct {
	store         *store.Store
	conversations *store.Conversations

	mu        sync.Mutex
	created   string // Conversation.Version of the newest session that was created here
	createdAt time.Time
}

// maxLag is for how long a list makes sure that it contains the sessions that were created here. An operator whose watch lags for longer does
// not answer lists at all. After a restore of the cluster, versions begin again with lower ones, for which a list would wait.
const maxLag = time.Minute

// noteCreated makes lists contain a session.
func (s *service) noteCreated(created *store.Conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Versions are decimal numbers.
	isNewer := cmp.Or(cmp.Compare(len(created.Version), len(s.created)), strings.Compare(created.Version, s.created)) > 0
	if isNewer || time.Since(s.createdAt) > maxLag {
		s.created, s.createdAt = created.Version, time.Now()
	}
}

// minVersion returns the version that a list needs.
func (s *service) minVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.createdAt) > maxLag {
		return ""
	}
	return s.created
}

// key identifies a session, or with an empty id the user of an app, or with an empty user, too, the app.
type key struct{ app, user, id string }

// prefix begins the IDs of the conversations of this package.
const prefix = "adk"

// conversationID returns the ID of the conversation of a session, of a user or of an app. Those of users and apps have no turns: their metadata
// is the state that sessions share.
func (k key) conversationID() string {
	parts := []string{prefix}
	for _, part := range []string{k.app, k.user, k.id} {
		if part != "" {
			parts = append(parts, url.QueryEscape(part))
		}
	}
	return strings.Join(parts, ":")
}

// parseID returns the session with a conversation ID.
func parseID(conversationID string) (k key, ok bool) {
	parts := strings.Split(conversationID, ":")
	if len(parts) != 4 || parts[0] != prefix {
		return key{}, false
	}
	for i, part := range []*string{&k.app, &k.user, &k.id} {
		value, err := url.QueryUnescape(parts[i+1])
		if err != nil {
			return key{}, false
		}
		*part = value
	}
	return k, k.app != "" && k.user != "" && k.id != ""
}

func (k key) ofUser() key { return key{app: k.app, user: k.user} }
func (k key) ofApp() key  { return key{app: k.app} }

// undoTimeout is how long the deletion of a session that could not be created completely may take.
const undoTimeout = 10 * time.Second

// Create implements session.Service.
func (s *service) Create(ctx context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	k := key{r.AppName, r.UserID, r.SessionID}
	if k.id == "" {
		k.id = platform.NewUUID(ctx)
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	parts, err := splitState(r.State)
	if err != nil {
		return nil, err
	}
	if err := s.ensure(ctx, k.ofUser()); err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(parts.session)
	if err != nil {
		return nil, err
	}
	created, err := s.conversations.Create(ctx, &store.Conversation{
		ConversationID: k.conversationID(), UserID: k.user, Title: k.id, ParentConversationID: k.ofUser().conversationID(), Metadata: metadata,
	})
	if err != nil {
		return nil, err
	}
	s.noteCreated(created)
	if err := s.share(ctx, k, parts, created.CreatedAt, false); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return nil, errors.Join(err, s.conversations.Delete(ctx, k.conversationID(), store.DeleteConversationOptions{}))
	}
	handle, err := s.handle(ctx, k, created, nil)
	if err != nil {
		return nil, err
	}
	return &session.CreateResponse{Session: handle}, nil
}

func (k key) check() error {
	if k.app == "" || k.user == "" || k.id == "" {
		return fmt.Errorf("the app name, the user ID and the session ID must not be empty: got %q, %q and %q", k.app, k.user, k.id)
	}
	return nil
}

// ensure creates the conversation of a user or an app if there is none.
func (s *service) ensure(ctx context.Context, k key) error {
	conversation := &store.Conversation{ConversationID: k.conversationID(), UserID: k.user}
	if k.user != "" {
		conversation.ParentConversationID = k.ofApp().conversationID()
	}
	_, err := s.conversations.Create(ctx, conversation)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// Get implements session.Service.
func (s *service) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	k := key{r.AppName, r.UserID, r.SessionID}
	if err := k.check(); err != nil {
		return nil, err
	}
	conversation, err := s.conversation(ctx, k)
	if err != nil {
		return nil, err
	}
	history, err := s.history(ctx, k, r.NumRecentEvents)
	if err != nil {
		return nil, err
	}
	handle, err := s.handle(ctx, k, conversation, history)
	if err != nil {
		return nil, err
	}
	handle.keepSince(r.After)
	return &session.GetResponse{Session: handle}, nil
}

// conversation returns the conversation of a session. One that is being deleted does not exist any more.
func (s *service) conversation(ctx context.Context, k key) (*store.Conversation, error) {
	conversation, err := s.conversations.Get(ctx, k.conversationID())
	if err == nil && conversation.State == store.ConversationDeleting {
		err = fmt.Errorf("session %q is being deleted: %w", k.id, store.ErrConversationNotFound)
	}
	return conversation, err
}

// history returns the events of a session, or with recent > 0 only the last ones.
func (s *service) history(ctx context.Context, k key, recent int) (*store.History, error) {
	if recent > 0 {
		return s.conversations.Recent(ctx, k.conversationID(), min(recent, store.MaxDepthLimit), store.ResolveOptions{})
	}
	depth := store.MaxDepthLimit
	options := store.ResolveOptions{MaxDepth: &depth, Limit: store.MaxLimit}
	all, err := s.conversations.Load(ctx, k.conversationID(), options)
	if err != nil {
		return nil, err
	}
	for options.After = all.Next; options.After != ""; {
		page, err := s.conversations.Load(ctx, k.conversationID(), options)
		if err != nil {
			return nil, err
		}
		// Events that were appended meanwhile are on the last page.
		all.Turns, all.Items, options.After = page.Turns, append(all.Items, page.Items...), page.Next
	}
	return all, nil
}

// lastTurn returns the response ID of the last event of a history, or the empty string.
func lastTurn(history *store.History) string {
	if history == nil || len(history.Turns) == 0 {
		return ""
	}
	return history.Turns[len(history.Turns)-1]
}

// handle returns a handle of a session with the events of a history, which is nil if there are none, and with its state after the last one.
func (s *service) handle(ctx context.Context, k key, conversation *store.Conversation, history *store.History) (*handle, error) {
	shared, err := s.shared(ctx, k)
	if err != nil {
		return nil, err
	}
	return s.handleWith(ctx, k, conversation, history, shared)
}

// handleWith is handle, given the state that the session shares.
func (s *service) handleWith(
	ctx context.Context, k key, conversation *store.Conversation, history *store.History, shared map[string]any,
) (*handle, error) {
	h := &handle{key: k, last: lastTurn(history), updated: conversation.CreatedAt}
	raw := conversation.Metadata
	if h.last != "" {
		turn, err := s.store.Get(ctx, h.last)
		if err != nil {
			return nil, err
		}
		raw = turn.Metadata
		if h.events, err = eventsOf(history); err != nil {
			return nil, err
		}
		h.updated = turn.CreatedAt // if all items that were read are hidden
		if n := len(h.events); n > 0 {
			h.updated = h.events[n-1].Timestamp
		}
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &h.own); err != nil {
			return nil, fmt.Errorf("unable to read the state of session %q: %w: %w", k.id, errForeign, err)
		}
	}
	h.state = maps.Clone(shared)
	maps.Copy(h.state, h.own)
	return h, nil
}

// List implements session.Service. The sessions have their states, but no events. If the last event of a session is missing or cannot be read, List
// returns the state with which the session was created; such a session can be deleted, but not read. In a cluster, a session that another replica
// created a moment ago may be missing.
func (s *service) List(ctx context.Context, r *session.ListRequest) (*session.ListResponse, error) {
	if r.AppName == "" {
		return nil, errors.New("the app name must not be empty")
	}
	parent := key{app: r.AppName, user: r.UserID}
	response := &session.ListResponse{Sessions: []session.Session{}}
	options := store.ConversationListOptions{
		ParentConversationID: parent.conversationID(), Descendants: r.UserID == "",
		States: []string{store.ConversationActive, store.ConversationArchived}, Version: s.minVersion(),
	}
	var shared map[string]any // of the user of the last session
	var sharedBy key
	for {
		page, err := s.conversations.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for _, found := range page.Conversations {
			k, ok := parseID(found.ConversationID)
			if !ok {
				continue // the conversation of a user
			}
			if shared == nil || sharedBy != k.ofUser() {
				if shared, err = s.shared(ctx, k); err != nil {
					return nil, err
				}
				sharedBy = k.ofUser()
			}
			handle, err := s.listed(ctx, k, shared)
			switch {
			case errors.Is(err, store.ErrConversationNotFound): // deleted meanwhile
			case err != nil:
				return nil, err
			default:
				response.Sessions = append(response.Sessions, handle)
			}
		}
		if options.After = page.Next; options.After == "" {
			return response, nil
		}
	}
}

// listed returns a handle of a session without its events, given the state that it shares.
func (s *service) listed(ctx context.Context, k key, shared map[string]any) (handle *handle, err error) {
	conversation, err := s.conversation(ctx, k)
	if err != nil {
		return nil, err
	}
	last, err := s.history(ctx, k, 1)
	if err == nil {
		handle, err = s.handleWith(ctx, k, conversation, last, shared)
	}
	if isLost(err) {
		handle, err = s.handleWith(ctx, k, conversation, nil, shared)
	}
	if err != nil {
		return nil, err
	}
	handle.events = nil
	return handle, nil
}

// isLost reports whether an error indicates that events of a session are missing, or are not as this service has stored them.
func isLost(err error) bool {
	return slices.ContainsFunc([]error{
		errForeign, store.ErrNotFound, store.ErrUnreadable, store.ErrUnavailable, store.ErrCycleDetected,
	}, func(lost error) bool { return errors.Is(err, lost) })
}

// Delete implements session.Service. The states of the app and of the user stay. It is not an error if the session does not exist.
func (s *service) Delete(ctx context.Context, r *session.DeleteRequest) error {
	k := key{r.AppName, r.UserID, r.SessionID}
	if err := k.check(); err != nil {
		return err
	}
	return s.conversations.Delete(ctx, k.conversationID(), store.DeleteConversationOptions{Turns: true})
}

// AppendEvent implements session.Service. It changes the handle, too. If the event has no ID, it gets one.
//
// The event and the state of the session are stored together, and then the states of the user and the app. If that fails, append the event
// again: values that a later event has set are kept. If other sessions have made these states too large at the same time, the error is
// store.ErrInvalid although the event is stored, and its changes to them are lost.
func (s *service) AppendEvent(ctx context.Context, to session.Session, event *session.Event) error {
	h, ok := to.(*handle)
	switch {
	case !ok:
		return fmt.Errorf("the session is a %T: must be one that this service has returned", to)
	case event == nil:
		return errors.New("the event is nil")
	case event.Partial:
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if event.ID == "" {
		event.ID = platform.NewUUID(ctx)
	}
	parts, err := splitState(event.Actions.StateDelta)
	if err != nil {
		return err
	}
	own := map[string]any{}
	maps.Copy(own, h.own)
	maps.Copy(own, parts.session)
	turn, err := newTurn(h.key, event, own)
	if err != nil {
		return err
	}
	repeated, err := s.prepareShare(ctx, h.key, turn, parts)
	if err != nil {
		return err
	}
	options := store.AppendOptions{ExpectedPreviousResponseID: &h.last}
	if _, err := s.conversations.Append(ctx, h.conversationID(), turn, options); err != nil {
		return err
	}
	err = s.share(ctx, h.key, parts, event.Timestamp, repeated)
	if err != nil && !errors.Is(err, store.ErrInvalid) {
		return fmt.Errorf("the event is stored, but not the state that it shares: append it again: %w", err)
	}
	if h.last != turn.ResponseID { // it was not appended before
		h.append(turn.ResponseID, event, own)
	}
	if err != nil {
		return fmt.Errorf("the event is stored, but not the state that it shares, which others have made too large meanwhile: %w", err)
	}
	return nil
}

// prepareShare reports whether an event that changes what sessions share is already stored. Otherwise, it returns an error if that would become too
// large: the event could be stored, but not its changes.
func (s *service) prepareShare(ctx context.Context, k key, turn *store.Session, parts states) (stored bool, err error) {
	if len(parts.app) == 0 && len(parts.user) == 0 {
		return false, nil
	}
	switch _, err := s.store.Get(ctx, turn.ResponseID); {
	case err == nil:
		return true, nil
	case !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	return false, s.checkShared(ctx, k, parts, turn.CreatedAt)
}

// newTurn returns the turn of an event, after which the session has a state.
func newTurn(k key, event *session.Event, state map[string]any) (*store.Session, error) {
	request, err := json.Marshal(body{Input: []item{{Type: itemType, Event: withoutTemp(event)}}})
	if err != nil {
		return nil, fmt.Errorf("unable to encode event %q: %w", event.ID, err)
	}
	metadata, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("unable to encode the state of session %q: %w", k.id, err)
	}
	return &store.Session{
		ResponseID: turnID(k, event.ID), Status: store.StatusCompleted, CreatedAt: event.Timestamp,
		Request: request, Metadata: metadata,
	}, nil
}
