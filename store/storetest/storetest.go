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

// Package storetest contains the test suite for drivers of package store, including drivers in other modules. The test of a
// driver calls Run. A G and a number in the comment of a test refers to a statement about the behaviour of other stores, which this one must match.
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
)

// Option is an option of Run.
type Option func(*suite)

// CreateNamespace creates a namespace before the suite uses it. Without this option, namespaces need not be created.
func CreateNamespace(create func(t *testing.T, name string)) Option {
	return func(s *suite) { s.createNamespace = create }
}

// Patience is how long the suite waits for effects that a driver may complete after it has returned. The default is a minute.
func Patience(d time.Duration) Option {
	return func(s *suite) { s.patience = d }
}

// BodiesOnly leaves out the tests of what does not depend on where bodies are stored, for a driver that stores everything else like another one
// that is tested.
func BodiesOnly() Option {
	return func(s *suite) { s.bodiesOnly = true }
}

// Run tests a driver through store.Store, and so checks the guarantees that users get. It calls open at least twice and closes
// the results. Each test has its own namespaces with random DNS labels as names, so that all drivers may share one cluster or
// database; the tests run in parallel.
//
// The tests of conversations run if the driver implements driver.Conversations, and those of their lists if it implements
// driver.ConversationLister, unless BodiesOnly is given.
//
// The driver's default of ResolveOptions.MaxDepth must be store.DefaultMaxDepth.
func Run(t *testing.T, open func(t *testing.T) driver.Store, options ...Option) {
	s := &suite{createNamespace: func(*testing.T, string) {}, patience: time.Minute}
	s.open = func(t *testing.T) *store.Store {
		d := open(t)
		_, s.conversations = d.(driver.Conversations)
		_, s.conversationLists = d.(driver.ConversationLister)
		return store.New(d, driver.Options{})
	}
	for _, option := range options {
		option(s)
	}
	s.root = s.open(t)
	t.Cleanup(func() {
		if err := s.root.Close(); err != nil {
			t.Errorf("Unable to close the store: %v", err)
		}
	})
	tests := maps.Clone(bodyTests)
	if !s.bodiesOnly {
		maps.Copy(tests, turnTests)
		if s.conversations {
			maps.Copy(tests, conversationTests)
		}
		if s.conversationLists {
			maps.Copy(tests, conversationListTests)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// bodyTests are the tests of what may depend on where a driver stores bodies.
var bodyTests = map[string]func(*testing.T, *suite){
	"Get":             testGet,
	"RoundTrip":       testRoundTrip,
	"LargeTurn":       testLargeTurn,
	"SaveAgain":       testSaveAgain,
	"SaveExisting":    testSaveExisting,
	"SaveConflict":    testSaveConflict,
	"SaveResult":      testSaveResult,
	"Overwrite":       testOverwrite,
	"Reparent":        testReparent,
	"ExpectedParent":  testExpectedParent,
	"Version":         testVersion,
	"OneSaveSucceeds": testOneSaveSucceeds,
	"NoLostUpdate":    testNoLostUpdate,
	"EqualOverwrites": testEqualOverwrites,
	"Delete":          testDelete,
	"DeleteCascade":   testDeleteCascade,
	"DeleteInChain":   testDeleteInChain,
	"Isolation":       testIsolation,
	"SaveAfterDelete": testSaveAfterDelete,
	"Flatten":         testFlatten,
	"Instructions":    testInstructions,
	"Last":            testLast,
	"Pages":           testPages,
	"Origins":         testOrigins,
	"Digests":         testDigests,
	"Forest":          testForest,
	"BodiesErrors":    testBodiesErrors,
	"BodiesOverwrite": testBodiesOverwrite,
	"FindItemIDs":     testItemIDs,
	"FindItemPages":   testFindItemPages,
	"FindItemErrors":  testFindItemErrors,
}

// turnTests are the tests of turns that do not depend on where bodies are stored.
var turnTests = map[string]func(*testing.T, *suite){
	"ResponseIDs":    testResponseIDs,
	"Invalid":        testInvalid,
	"Immutable":      testImmutable,
	"Walk":           testWalk,
	"DefaultDepth":   testDefaultDepth,
	"LateParent":     testLateParent,
	"Parent":         testParent,
	"LastInvalid":    testLastInvalid,
	"Cursors":        testCursors,
	"ResolveOptions": testResolveOptions,
	"ResolveVersion": testResolveVersion,
	"Ping":           testPing,
	"List":           testList,
	"ListFields":     testListFields,
	"ListIDs":        testListConversationIDs,
	"ListPages":      testListPages,
	"ListOverwrite":  testListOverwrite,
	"ListDelete":     testListDelete,
	"ListLimits":     testListLimits,
	"ListInvalid":    testListInvalid,
	"Namespaces":     testNamespaces,
	"Context":        testContext,
	"Close":          testClose,
}

type suite struct {
	open            func(t *testing.T) *store.Store
	createNamespace func(t *testing.T, name string)
	patience        time.Duration
	root            *store.Store
	programs, steps int

	conversations, conversationLists bool // what the driver implements
	bodiesOnly                       bool
}

// newStore returns the store of a namespace that no other test uses.
func (s *suite) newStore(t *testing.T) *store.Store {
	t.Helper()
	return s.root.InNamespace(s.newNamespace(t))
}

func (s *suite) newNamespace(t *testing.T) string {
	t.Helper()
	name := "storetest-" + strings.ToLower(rand.Text())
	s.createNamespace(t, name)
	return name
}

// eventually waits until check returns nil.
func (s *suite) eventually(t *testing.T, check func() error) {
	t.Helper()
	testutil.EventuallyWithin(t, s.patience, func(context.Context) error { return check() })
}

// texts returns the items of testturn.Make's turns, abbreviated.
func texts(ids ...string) []string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, "user: question of "+id, "assistant: answer of "+id)
	}
	return texts
}

// textsOf returns the items of a history, abbreviated.
func textsOf(t *testing.T, h *store.History) []string {
	t.Helper()
	var texts []string
	for _, raw := range h.Items {
		var item struct {
			Role    string
			Content []struct{ Text string }
		}
		if err := json.Unmarshal(raw, &item); err != nil || len(item.Content) != 1 {
			t.Fatalf("Unexpected item %s", raw)
		}
		texts = append(texts, item.Role+": "+item.Content[0].Text)
	}
	return texts
}

func save(t *testing.T, s *store.Store, session *store.Session, options store.SaveOptions) {
	t.Helper()
	if err := s.Save(t.Context(), session, options); err != nil {
		t.Fatalf("Unable to save %q: %v", session.ResponseID, err)
	}
}

// saveRow saves a conversation of completed turns.
func saveRow(t *testing.T, s *store.Store, ids ...string) {
	t.Helper()
	previous := ""
	for _, id := range ids {
		save(t, s, testturn.Make(id, previous), store.SaveOptions{})
		previous = id
	}
}

func get(t *testing.T, s *store.Store, id string) *store.Session {
	t.Helper()
	session, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Unable to get %q: %v", id, err)
	}
	return session
}

func resolve(t *testing.T, s *store.Store, id string, options store.ResolveOptions) *store.History {
	t.Helper()
	history, err := s.Resolve(t.Context(), id, options)
	if err != nil {
		t.Fatalf("Unable to resolve %q: %v", id, err)
	}
	return history
}

// wantStored checks the stored turn, except its version.
func wantStored(t *testing.T, s *store.Store, want *store.Session) {
	t.Helper()
	if diff := diffSessions(want, get(t, s, want.ResponseID)); diff != "" {
		t.Errorf("Unexpected session %q (-want,+got):\n%s", want.ResponseID, diff)
	}
}

// wantMissing checks that a turn is not stored.
func wantMissing(t *testing.T, s *store.Store, id string) {
	t.Helper()
	_, err := s.Get(t.Context(), id)
	wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: id})
}

// wantError checks the error of any method except Resolve. If want has no response ID, it is not checked.
func wantError(t *testing.T, err error, want *store.Error) {
	t.Helper()
	got, ok := errors.AsType[*store.Error](err)
	if !ok || !errors.Is(err, &store.Error{Code: want.Code}) {
		t.Errorf("Unexpected error: want %s, got %v", want.Code, err)
		return
	}
	if got.Error() == "" {
		t.Errorf("The error of %s has no message", want.Code)
	}
	if want.ResponseID != "" && got.ResponseID != want.ResponseID {
		t.Errorf("Unexpected response ID of the error %v: want %q, got %q", err, want.ResponseID, got.ResponseID)
	}
	if want.Code == store.CodeNotFound && got.PreviousResponseID != want.PreviousResponseID {
		t.Errorf("Unexpected previous response ID of the error %v: got %q, want %q", err, got.PreviousResponseID, want.PreviousResponseID)
	}
	if got.Retryable != want.Retryable {
		t.Errorf("Unexpected error %v: want retryable %v", err, want.Retryable)
	}
}

// wantResolveError checks the error of Resolve.
func wantResolveError(t *testing.T, err error, want *store.Error) {
	t.Helper()
	wantError(t, err, want)
	got, _ := errors.AsType[*store.Error](err)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.Error{}, "Message", "Err")); diff != "" {
		t.Errorf("Unexpected error (-want,+got):\n%s", diff)
	}
}

// diffSessions compares two sessions as a store must keep them: JSON by its value, and times to the second.
func diffSessions(want, got *store.Session) string {
	return cmp.Diff(want, got,
		cmp.Comparer(func(a, b time.Time) bool { return a.Truncate(time.Second).Equal(b.Truncate(time.Second)) }),
		cmp.Comparer(func(a, b json.RawMessage) bool { return differenceJSON(a, b) == "" }),
		cmpopts.IgnoreFields(store.Session{}, "Version"))
}

// differenceJSON describes the first difference of two JSON values; an absent one is nil.
func differenceJSON(want, got json.RawMessage) string {
	if bytes.Equal(want, got) {
		return "" // without decoding megabytes
	}
	if len(want) == 0 || len(got) == 0 {
		if len(want) != len(got) {
			return fmt.Sprintf("is %q, not %q", got, want)
		}
		return ""
	}
	wantValue, err := jsonvalue.Decode(want)
	if err != nil {
		return err.Error()
	}
	gotValue, err := jsonvalue.Decode(got)
	if err != nil {
		return err.Error()
	}
	return jsonvalue.Difference("", wantValue, gotValue)
}
