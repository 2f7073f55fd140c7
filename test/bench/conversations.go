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
)

const (
	longTurns        = 1_000
	fewConversations = 10
	conversationSize = 4 << 10
	// conversationsBySummary is how many conversations there are for each one that has a summary.
	conversationsBySummary = 10
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
	turns, err := b.openStore(ctx, "long")
	if err != nil {
		return err
	}
	defer func() { _ = turns.Close() }()
	c := turns.Conversations()
	session := conversationTurn(conversationSize)
	appendTurn := func(conversation, id string) error {
		next := session.Clone()
		next.ResponseID = id
		_, err := c.Append(ctx, conversation, next, store.AppendOptions{})
		return err
	}
	b.logf("appending %d turns", longTurns)
	for id, n := range map[string]int{"conv_short": 1, "conv_long": longTurns} {
		_, err := c.Create(ctx, &store.Conversation{ConversationID: id})
		for turn := 0; turn < n && err == nil; turn++ {
			err = appendTurn(id, fmt.Sprintf("resp_%s_%d", id, turn))
		}
		if err != nil {
			return err
		}
		if err := c.SaveSummary(ctx, id, store.Summary{StartTurn: 0, EndTurn: n, Content: "A summary."}); err != nil {
			return err
		}
	}
	title, appended, forked := "", 0, 0
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
		{"Fork at the first turn", func(id string) error {
			forked++
			_, err := c.Fork(ctx, id, fmt.Sprintf("conv_fork_%d", forked), store.ForkOptions{ResponseID: "resp_" + id + "_0"})
			return err
		}},
		{"Rollback to the last turn", func(id string) error {
			current, err := c.Get(ctx, id)
			if err != nil {
				return err
			}
			_, err = c.Rollback(ctx, id, current.Head.ResponseID)
			return err
		}},
		{"HideItem of the first turn", func(id string) error {
			_, err := c.HideItem(ctx, id, "resp_"+id+"_0", 0)
			return err
		}},
		{"Append", func(id string) error {
			appended++
			return appendTurn(id, fmt.Sprintf("resp_more_%d", appended))
		}},
	} {
		name := fmt.Sprintf("%s of a conversation of %d turns", operation.name, longTurns)
		long, short := func() error { return operation.call("conv_long") }, func() error { return operation.call("conv_short") }
		if err := b.flat(name, "of 1 turn", long, short); err != nil {
			return err
		}
	}
	return nil
}

// manyConversations compares lists and other calls in a namespace of b.conversations conversations with those in one of fewConversations.
func (b *bench) manyConversations(ctx context.Context) error {
	few, err := b.openStore(ctx, "few")
	if err != nil {
		return err
	}
	defer func() { _ = few.Close() }()
	many, err := b.openStore(ctx, "many")
	if err != nil {
		return err
	}
	defer func() { _ = many.Close() }()
	b.logf("creating %d conversations", b.conversations)
	err = errors.Join(createConversations(ctx, few.Conversations(), fewConversations), createConversations(ctx, many.Conversations(), b.conversations))
	if err != nil {
		return err
	}
	title, appended := "", 0
	list := func(options store.ConversationListOptions) func(c *store.Conversations) error {
		return func(c *store.Conversations) error { _, err := c.List(ctx, options); return err }
	}
	for _, operation := range []struct {
		name string
		call func(c *store.Conversations) error
	}{
		{"the first page of 10 conversations, the newest first,", list(store.ConversationListOptions{Limit: 10})},
		{"the first page of 10 by last activity,", list(store.ConversationListOptions{Limit: 10, Sort: store.SortActivity})},
		{"one conversation of a user,", list(store.ConversationListOptions{Limit: 1, UserID: "user_5"})},
		{"Get of one", func(c *store.Conversations) error { _, err := c.Get(ctx, "conv_0"); return err }},
		{"Patch of one", func(c *store.Conversations) error {
			title += "."
			_, err := c.Patch(ctx, "conv_0", store.ConversationPatch{Title: &title})
			return err
		}},
		{"Recent(1) of one", func(c *store.Conversations) error {
			_, err := c.Recent(ctx, "conv_0", 1, store.ResolveOptions{})
			return err
		}},
		{"Count of one", func(c *store.Conversations) error { _, err := c.Count(ctx, "conv_0"); return err }},
		{"Summaries of one", func(c *store.Conversations) error { _, err := c.Summaries(ctx, "conv_0"); return err }},
		{"Append to one", func(c *store.Conversations) error {
			appended++
			turn := conversationTurn(conversationSize)
			turn.ResponseID = fmt.Sprintf("resp_more_%d", appended)
			_, err := c.Append(ctx, "conv_0", &turn, store.AppendOptions{})
			return err
		}},
	} {
		in := func(s *store.Store) func() error { return func() error { return operation.call(s.Conversations()) } }
		name := fmt.Sprintf("%s of %d conversations", operation.name, b.conversations)
		if err := b.flat(name, fmt.Sprintf("of %d", fewConversations), in(many), in(few)); err != nil {
			return err
		}
	}
	return nil
}

// createConversations creates conversations of ten users, some with a summary and one with a turn, and waits until they are listed.
func createConversations(ctx context.Context, c *store.Conversations, n int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error {
			id := fmt.Sprintf("conv_%d", i)
			_, err := c.Create(groupCtx, &store.Conversation{ConversationID: id, UserID: fmt.Sprintf("user_%d", i*10/n), Title: "A trip"})
			if err != nil || i%conversationsBySummary != 0 {
				return err
			}
			return c.SaveSummary(groupCtx, id, store.Summary{EndTurn: 1, Content: "A summary."})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	turn := conversationTurn(conversationSize)
	turn.ResponseID = "resp_0"
	if _, err := c.Append(ctx, "conv_0", &turn, store.AppendOptions{}); err != nil {
		return err
	}
	last, err := c.Create(ctx, &store.Conversation{ConversationID: "conv_last"})
	if err != nil {
		return err
	}
	_, err = c.List(ctx, store.ConversationListOptions{Limit: 1, Version: last.Version})
	return err
}

// flat compares calls that should take as long, of which the second one deals with much less. It takes the medians of conversationCalls calls.
func (b *bench) flat(name, comparison string, much, little func() error) error {
	ours, theirs := series{}, series{Name: comparison}
	medianOf := func(s *series, call func() error) func() error {
		return func() error {
			var calls series
			for range conversationCalls {
				if err := timed(&calls, call)(); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			s.add(calls.median())
			return nil
		}
	}
	if err := interleave(b.rounds, medianOf(&ours, much), medianOf(&theirs, little)); err != nil {
		return err
	}
	b.compare(name, "ms", ours, theirs, atMost(1.25))
	return nil
}
