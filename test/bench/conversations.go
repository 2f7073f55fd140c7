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
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

const (
	longTurns        = 1_000
	fewConversations = 10
	conversationSize = 4 << 10
	// conversationCalls is the number of calls in each round, of which the median counts.
	conversationCalls = 20
)

// conversationsExperiment measures what should cost the same however long a conversation is, and lists that should cost the same however many
// conversations there are.
func conversationsExperiment(ctx context.Context, b *bench) error {
	return errors.Join(b.longConversation(ctx), b.manyConversations(ctx))
}

// longConversation compares a conversation of longTurns turns with one of a single turn.
func (b *bench) longConversation(ctx context.Context) error {
	const namespace = "long"
	if err := b.createNamespace(ctx, namespace); err != nil {
		return err
	}
	options, err := b.podOptions(ctx, namespace)
	if err != nil {
		return err
	}
	turns, err := kube.Open(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = turns.Close() }()
	c := turns.Conversations()
	b.logf("appending %d turns", longTurns)
	for id, n := range map[string]int{"conv_short": 1, "conv_long": longTurns} {
		_, err := c.Create(ctx, &store.Conversation{ConversationID: id})
		for turn := 0; turn < n && err == nil; turn++ {
			err = appendTurn(ctx, c, id, fmt.Sprintf("resp_%s_%d", id, turn))
		}
		if err != nil {
			return err
		}
		if err := c.SaveSummary(ctx, id, store.Summary{StartTurn: 0, EndTurn: n, Content: "A summary."}); err != nil {
			return err
		}
	}
	title, appended := "", 0
	for _, operation := range []struct {
		name string
		call func(id string) error
	}{
		{"Get", func(id string) error { _, err := c.Get(ctx, id); return err }},
		{"Patch", func(id string) error {
			title += "."
			_, err := c.Patch(ctx, id, store.ConversationPatch{Title: &title})
			return err
		}},
		{"Recent(1)", func(id string) error { _, err := c.Recent(ctx, id, 1, store.ResolveOptions{}); return err }},
		{"Count", func(id string) error { _, err := c.Count(ctx, id); return err }},
		{"Turns, a page of 10", func(id string) error { _, err := c.Turns(ctx, id, store.ListOptions{Limit: 10}); return err }},
		{"Summaries", func(id string) error { _, err := c.Summaries(ctx, id); return err }},
		{"Append", func(id string) error {
			appended++
			return appendTurn(ctx, c, id, fmt.Sprintf("resp_more_%d", appended))
		}},
	} {
		long, short := series{}, series{Name: "of 1 turn"}
		call := func(id string) func() error { return func() error { return operation.call(id) } }
		if err := interleave(b.rounds, medianOf(&long, call("conv_long")), medianOf(&short, call("conv_short"))); err != nil {
			return fmt.Errorf("%s: %w", operation.name, err)
		}
		b.compare(fmt.Sprintf("%s of a conversation of %d turns", operation.name, longTurns), "ms", long, short, atMost(1.25))
	}
	return nil
}

func appendTurn(ctx context.Context, c *store.Conversations, conversation, id string) error {
	session := conversationTurn(conversationSize)
	session.ResponseID = id
	_, err := c.Append(ctx, conversation, &session, store.AppendOptions{})
	return err
}

// medianOf returns a function that adds the median time of conversationCalls calls.
func medianOf(s *series, call func() error) func() error {
	return func() error {
		var calls series
		for range conversationCalls {
			if err := timed(&calls, call)(); err != nil {
				return err
			}
		}
		s.add(calls.median())
		return nil
	}
}

// manyConversations compares lists in a namespace of b.conversations conversations with those in one of fewConversations.
func (b *bench) manyConversations(ctx context.Context) error {
	const users = 10
	stores := map[string]*store.Conversations{}
	for namespace, n := range map[string]int{"few": fewConversations, "many": b.conversations} {
		if err := b.createNamespace(ctx, namespace); err != nil {
			return err
		}
		options, err := b.podOptions(ctx, namespace)
		if err != nil {
			return err
		}
		turns, err := kube.Open(ctx, options)
		if err != nil {
			return err
		}
		defer func() { _ = turns.Close() }()
		stores[namespace] = turns.Conversations()
		b.logf("creating %d conversations", n)
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(writers)
		for i := range n {
			group.Go(func() error {
				next := &store.Conversation{ConversationID: fmt.Sprintf("conv_%d", i), UserID: fmt.Sprintf("user_%d", i*users/n), Title: "A trip"}
				_, err := stores[namespace].Create(groupCtx, next)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	last, err := stores["many"].Get(ctx, fmt.Sprintf("conv_%d", b.conversations-1))
	if err != nil {
		return err
	}
	for name, options := range map[string]store.ConversationListOptions{
		"the first page of 10 conversations, the newest first": {Limit: 10},
		"the first page of 10 by last activity":                {Limit: 10, Sort: store.SortActivity},
		"one conversation of a user":                           {Limit: 1, UserID: "user_5"},
	} {
		many, few := series{}, series{Name: fmt.Sprintf("of %d", fewConversations)}
		call := func(namespace string) func() error {
			return func() error { _, err := stores[namespace].List(ctx, options); return err }
		}
		if _, err := stores["many"].List(ctx, store.ConversationListOptions{Version: last.Version}); err != nil {
			return err
		}
		if err := interleave(b.rounds, medianOf(&many, call("many")), medianOf(&few, call("few"))); err != nil {
			return err
		}
		b.compare(fmt.Sprintf("%s, of %d conversations", name, b.conversations), "ms", many, few, atMost(1.25))
	}
	return nil
}
