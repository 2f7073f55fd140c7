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

package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/memory"
)

// A gateway saves each completed turn, and resolves the previous turn of the next request.
func Example() {
	ctx := context.Background()
	s, err := store.Open(ctx, "memory:?namespace=team-a")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	// The first request was answered.
	err = s.Save(ctx, &store.Session{
		ResponseID: "resp_1",
		Status:     store.StatusCompleted,
		Request:    json.RawMessage(`{"model":"m","input":"What is a catena?"}`),
		Response:   json.RawMessage(`{"id":"resp_1","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"A chain."}]}]}`),
	}, store.SaveOptions{})
	if err != nil {
		log.Fatal(err)
	}

	// The second one has "previous_response_id": "resp_1": these items go before its own input.
	history, err := s.Resolve(ctx, "resp_1", store.ResolveOptions{Instructions: store.InstructionsOmit})
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range history.Items {
		fmt.Println(string(item))
	}
	// Output:
	// {"type":"message","role":"user","content":[{"type":"input_text","text":"What is a catena?"}]}
	// {"type":"message","role":"assistant","content":[{"type":"output_text","text":"A chain."}]}
}

// A save whose response was lost can be repeated. With different content it is a conflict.
func ExampleStore_save() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	turn := &store.Session{ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: store.StatusCompleted}
	parent := "resp_1" // the turn that was resolved for the request
	options := store.SaveOptions{ExpectedPreviousResponseID: &parent}

	fmt.Println(s.Save(ctx, turn, options))
	fmt.Println(s.Save(ctx, turn, options))
	turn.Status = store.StatusFailed
	fmt.Println(s.Save(ctx, turn, options))
	// Output:
	// <nil>
	// <nil>
	// response "resp_2" is already stored with different content
}

// An overwrite with a version fails if the turn has been overwritten since it was read.
func ExampleStore_overwrite() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	turn := &store.Session{ResponseID: "resp_1", Status: store.StatusInProgress}
	if err := s.Save(ctx, turn, store.SaveOptions{}); err != nil {
		log.Fatal(err)
	}

	mine, err := s.Get(ctx, "resp_1")
	if err != nil {
		log.Fatal(err)
	}
	turn.Status = store.StatusCompleted // a concurrent change
	if err := s.Save(ctx, turn, store.SaveOptions{Overwrite: true}); err != nil {
		log.Fatal(err)
	}
	mine.Status = store.StatusFailed
	err = s.Save(ctx, mine, store.SaveOptions{Overwrite: true})
	fmt.Println(errors.Is(err, store.ErrConflict), err)
	// Output:
	// true response "resp_1" was overwritten since it was read
}

// An error contains the turn at which the chain is broken, and indicates whether a retry can help.
func ExampleStore_resolve_errors() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	for _, turn := range []*store.Session{
		{ResponseID: "resp_1", Status: store.StatusInProgress},
		{ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: store.StatusCompleted},
		{ResponseID: "resp_9", PreviousResponseID: "resp_8", Status: store.StatusCompleted},
	} {
		if err := s.Save(ctx, turn, store.SaveOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	for _, id := range []string{"resp_2", "resp_9"} {
		_, err := s.Resolve(ctx, id, store.ResolveOptions{})
		if e, ok := errors.AsType[*store.Error](err); ok {
			fmt.Printf("%s at %s, retryable %t: %v\n", e.Code, e.ResponseID, e.Retryable, e)
		}
	}
	// Output:
	// session.chain.unavailable at resp_1, retryable true: response "resp_1" is "in_progress" and cannot be used as context until it is completed
	// session.chain.not_found at resp_8, retryable false: response "resp_8", an ancestor of "resp_9", was not found
}

// A history can be read page by page, the newest item first.
func ExampleStore_resolve_pages() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	err := s.Save(ctx, &store.Session{
		ResponseID: "resp_1", Status: store.StatusCompleted,
		Request: json.RawMessage(`{"input":[{"role":"user","content":"1"},{"role":"user","content":"2"},{"role":"user","content":"3"}]}`),
	}, store.SaveOptions{})
	if err != nil {
		log.Fatal(err)
	}
	options := store.ResolveOptions{Limit: 2, Order: store.OrderDescending}
	for more := true; more; more = options.After != "" {
		page, err := s.Resolve(ctx, "resp_1", options)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", page.Items)
		options.After = page.Next
	}
	// Output:
	// [{"role":"user","content":"3"} {"role":"user","content":"2"}]
	// [{"role":"user","content":"1"}]
}

// With Bodies, a history has the stored turns too.
func ExampleStore_resolve_bodies() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	for _, turn := range []*store.Session{
		{ResponseID: "resp_1", Status: store.StatusCompleted, Request: json.RawMessage(`{"model":"small","input":"Hello"}`)},
		{ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: store.StatusCompleted, Request: json.RawMessage(`{"model":"large","input":"Go on"}`)},
	} {
		if err := s.Save(ctx, turn, store.SaveOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	history, err := s.Resolve(ctx, "resp_2", store.ResolveOptions{Bodies: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, turn := range history.Sessions {
		fmt.Println(turn.ResponseID, turn.Model(), string(turn.Input()))
	}
	// Output:
	// resp_1 small "Hello"
	// resp_2 large "Go on"
}

// An item is found by its ID, in the turns that the history of a response has.
func ExampleStore_FindItem() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	for _, turn := range []*store.Session{
		{ResponseID: "resp_1", Status: store.StatusCompleted, Response: json.RawMessage(`{"output":[{"type":"reasoning","id":"rs_1"},{"type":"message","id":"msg_1"}]}`)},
		{ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: store.StatusCompleted},
	} {
		if err := s.Save(ctx, turn, store.SaveOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	item, err := s.FindItem(ctx, "resp_2", "msg_1", store.ResolveOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(item.ResponseID, item.Number, string(item.JSON))
	_, err = s.FindItem(ctx, "resp_2", "msg_2", store.ResolveOptions{})
	fmt.Println(errors.Is(err, store.ErrNotFound), err)
	// Output:
	// resp_1 1 {"type":"message","id":"msg_1"}
	// true the history of response "resp_2" has no item with the ID "msg_2"
}

// Commonly used fields of the bodies have methods; the bodies contain all other fields as they were saved.
func ExampleSession() {
	session := store.Session{
		Request: json.RawMessage(`{"model":"m","input":"hi","instructions":"be brief"}`),
		Response: json.RawMessage(`{"output":[{"type":"message","content":[{"type":"output_text","text":"Hello."}]}],
			"usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7}}`),
	}
	fmt.Println(session.Model(), session.Instructions(), string(session.Input()))
	fmt.Println(session.OutputText(), len(session.Output()), session.Usage().TotalTokens)
	// Output:
	// m be brief "hi"
	// Hello. 1 7
}
