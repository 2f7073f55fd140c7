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

package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
)

// ask creates a response with a model of the strict engine.
func (s *sdk) ask(model, previous string, items ...responses.ResponseInputItemUnionParam) *responses.Response {
	s.t.Helper()
	p := params(previous, items...)
	p.Model = model
	response, err := s.New(s.t.Context(), p)
	if e, ok := errors.AsType[*responses.Error](err); ok {
		s.t.Fatal(e.StatusCode, e.Message)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if response.PreviousResponseID != previous {
		s.t.Errorf("previous response %q, want %q", response.PreviousResponseID, previous)
	}
	return response
}

// rawItem returns an input item as JSON.
func rawItem(raw string) responses.ResponseInputItemUnionParam {
	return param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(raw))
}

func reference(id string) responses.ResponseInputItemUnionParam {
	return rawItem(fmt.Sprintf(`{"type":"item_reference","id":%q}`, id))
}

// items returns the items of a conversation up to a response, as JSON: what it was created from, and its output.
func (s *sdk) items(response *responses.Response) []string {
	s.t.Helper()
	var items []string
	for _, item := range s.inputItems(response.ID, "asc") {
		items = append(items, item.RawJSON())
	}
	for _, item := range response.Output {
		items = append(items, item.RawJSON())
	}
	return items
}

func list(items []string) string { return "[" + strings.Join(items, ",") + "]" }

// references refers to all items of a conversation, and adds a message of the user.
func (s *sdk) references(response *responses.Response, content string) []responses.ResponseInputItemUnionParam {
	s.t.Helper()
	var items []responses.ResponseInputItemUnionParam
	for _, item := range s.items(response) {
		items = append(items, reference(gjson.Get(item, "id").Str))
	}
	return append(items, user(content))
}

// values has all items of a conversation, and adds a message of the user.
func (s *sdk) values(response *responses.Response, content string) []responses.ResponseInputItemUnionParam {
	s.t.Helper()
	var items []responses.ResponseInputItemUnionParam
	for _, item := range s.items(response) {
		items = append(items, rawItem(item))
	}
	return append(items, user(content))
}

// wantChild fails the test unless a response is stored as the child of another one with only one new item.
func (s *sdk) wantChild(child, parent *responses.Response) {
	s.t.Helper()
	if got := s.storedParent(child); got != parent.ID {
		s.t.Errorf("the response is stored as the child of %q, want %q", got, parent.ID)
	}
	items, before := s.items(child), s.items(parent)
	if want := len(before) + 1 + len(child.Output); len(items) != want {
		s.t.Fatalf("%d items, want %d", len(items), want)
	}
	equalJSON(s.t, list(before), list(items[:len(before)]))
}

// storedParent returns the ID of the response that a response is stored as the child of, or an empty string.
func (s *sdk) storedParent(response *responses.Response) string {
	s.t.Helper()
	session := &v1alpha1.ResponseSession{}
	key := client.ObjectKey{Namespace: "default", Name: v1alpha1.ObjectName(response.ID)}
	if err := env.Client.Get(s.t.Context(), key, session); err != nil {
		s.t.Fatal(err)
	}
	return session.Spec.PreviousResponseID
}

// restartReplicas replaces both replicas by new processes.
func restartReplicas(t *testing.T) {
	t.Helper()
	for _, replica := range replicas {
		if err := replica.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := startReplicas(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestItemReferences refers to items of earlier responses through both replicas, and after both were restarted.
func TestItemReferences(t *testing.T) {
	s := newSDK(t)
	first := s.ask(enginetest.ModelStrict, "", user("one"))
	var second *responses.Response
	for range replicas {
		second = s.ask(enginetest.ModelStrict, "", s.references(first, "two")...)
		s.wantText(second, "You said 2 things, from 'one' to 'two', in 3 items.")
		s.wantChild(second, first)
	}
	restartReplicas(t)
	for range replicas {
		third := s.ask(enginetest.ModelStrict, "", s.references(second, "three")...)
		s.wantText(third, "You said 3 things, from 'one' to 'three', in 5 items.")
		s.wantChild(third, second)
	}
}

// TestItemReferenceAlone refers to an item out of the middle of a conversation, which is not the beginning of another one.
func TestItemReferenceAlone(t *testing.T) {
	s := newSDK(t)
	first := s.ask(enginetest.ModelStrict, "", user("one"))
	second := s.ask(enginetest.ModelStrict, first.ID, user("two"))
	other := s.ask(enginetest.ModelStrict, "", user("other"))
	question := s.inputItems(second.ID, "asc")[2].ID
	next := s.ask(enginetest.ModelStrict, other.ID, reference(question), reference(second.Output[0].ID), user("three"))
	s.wantText(next, "You said 3 things, from 'other' to 'three', in 5 items.")
	items := s.items(next)
	if got, want := gjson.Get(items[3], "content.0.text").Str, second.OutputText(); len(items) != 6 || got != want {
		t.Errorf("%d items, the fourth is %q, want %q", len(items), got, want)
	}
}

func TestUnknownItemReference(t *testing.T) {
	s := newSDK(t)
	kept, deleted := s.ask(enginetest.ModelStrict, "", user("one")), s.ask(enginetest.ModelStrict, "", user("one"))
	if err := s.Delete(t.Context(), deleted.ID); err != nil {
		t.Fatal(err)
	}
	s.wantError(http.StatusNotFound, "", func(ctx context.Context) error { // a deleted response may still be read for a moment
		_, err := s.Get(ctx, deleted.ID, responses.ResponseGetParams{})
		return err
	})
	for name, id := range map[string]string{
		"not an ID of the gateway":         "msg_0",
		"ID of the engine":                 "msg_engine_1",
		"item of a deleted response":       deleted.Output[0].ID,
		"item that the response lacks":     kept.Output[0].ID + "0",
		"item of an unknown response":      "msg_00000000000000000000000000000000_0",
		"response in the place of an item": kept.ID,
	} {
		t.Run(name, func(t *testing.T) {
			p := params("", reference(id), user("two"))
			p.Model = enginetest.ModelStrict
			_, err := s.New(t.Context(), p)
			e, ok := errors.AsType[*responses.Error](err)
			if !ok {
				t.Fatalf("got %v, want an error of the API", err)
			}
			// What follows says why OpenAI's API does not find an item either.
			if want := fmt.Sprintf("Item with id '%s' not found.", id); e.StatusCode != http.StatusNotFound || !strings.HasPrefix(e.Message, want) {
				t.Errorf("got %d %s, want 404 %s", e.StatusCode, e.Message, want)
			}
		})
	}
}

// TestForkByReferences continues a conversation twice from the same response.
func TestForkByReferences(t *testing.T) {
	s := newSDK(t)
	first := s.ask(enginetest.ModelStrict, "", user("one"))
	second := s.ask(enginetest.ModelStrict, "", s.references(first, "two")...)
	s.ask(enginetest.ModelStrict, "", s.references(second, "three")...)
	for _, content := range []string{"left", "right"} {
		fork := s.ask(enginetest.ModelStrict, "", s.references(first, content)...)
		s.wantText(fork, "You said 2 things, from 'one' to '%s', in 3 items.", content)
		s.wantChild(fork, first)
	}
}

// TestEditedHistory sends a conversation back by value with another first message: it is not the child of the stored one.
func TestEditedHistory(t *testing.T) {
	s := newSDK(t)
	first := s.ask(enginetest.ModelStrict, "", user("one"))
	items := s.values(first, "two")
	items[0] = user("edited")
	edited := s.ask(enginetest.ModelStrict, "", items...)
	s.wantText(edited, "You said 2 things, from 'edited' to 'two', in 3 items.")
	if parent := s.storedParent(edited); parent != "" {
		t.Errorf("the response is stored as the child of %q", parent)
	}
	if got := len(s.items(edited)); got != 4 {
		t.Errorf("%d items, want 4", got)
	}
}

// TestReasoning continues a response with a reasoning item. The engine checks that it gets the item as it has issued it.
func TestReasoning(t *testing.T) {
	for name, next := range map[string]func(*sdk, *responses.Response) *responses.Response{
		"previous response": func(s *sdk, first *responses.Response) *responses.Response {
			return s.ask(enginetest.ModelStrict, first.ID, user("two"))
		},
		"references": func(s *sdk, first *responses.Response) *responses.Response {
			return s.ask(enginetest.ModelStrict, "", s.references(first, "two")...)
		},
		"values": func(s *sdk, first *responses.Response) *responses.Response {
			return s.ask(enginetest.ModelStrict, "", s.values(first, "two")...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSDK(t)
			first := s.ask(enginetest.ModelStrict, "", user("reason"))
			if reasoning := first.Output[0]; reasoning.Type != "reasoning" || reasoning.EncryptedContent == "" {
				t.Fatalf("unexpected item: %s", reasoning.RawJSON())
			}
			second := next(s, first)
			s.wantText(second, "You said 2 things, from 'reason' to 'two', in 4 items.")
			s.wantChild(second, first)
		})
	}
}

// TestRepeatedIDs checks that clients never see an ID twice, although the engine repeats its own, and that a reference means the
// item with that ID.
func TestRepeatedIDs(t *testing.T) {
	s := newSDK(t)
	first := s.ask(enginetest.ModelRestarted, "", user("one"))
	second := s.ask(enginetest.ModelRestarted, first.ID, user("two"))
	if first.Output[0].ID == second.Output[0].ID {
		t.Errorf("both responses have an item with the ID %s", first.Output[0].ID)
	}
	third := s.ask(enginetest.ModelRestarted, "", s.references(second, "three")...)
	s.wantText(third, "You said 3 things, from 'one' to 'three', in 5 items.")
	s.wantChild(third, second)
	reversed := s.ask(enginetest.ModelRestarted, "", reference(second.Output[0].ID), reference(first.Output[0].ID), user("three"))
	items := s.items(reversed)
	for i, want := range []string{second.OutputText(), first.OutputText()} {
		if got := gjson.Get(items[i], "content.0.text").Str; got != want {
			t.Errorf("item %d is %q, want %q", i, got, want)
		}
	}
}
