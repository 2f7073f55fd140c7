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

package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// conversationAttacks are attacks with conversations on a victim who has conversations.
var conversationAttacks = map[string]attack{
	"items of long conversations": {
		clients: 16, small: 100, large: 1000, conversations: true, prepare: longConversation, answers: map[string]bool{"200": true, "429": false},
	},
	"searches of long histories": {
		clients: 16, small: 300, large: 1000, conversations: true, prepare: searches, answers: map[string]bool{"200": true, "429": false},
	},
	"lists of many conversations": {
		clients: 16, small: 300, large: 5000, conversations: true, prepare: manyConversations, answers: map[string]bool{"200": true, "429": false},
	},
	"moving heads": {
		clients: 16, small: 50, large: 500, conversations: true, prepare: movingHeads, answers: map[string]bool{"200": true},
	},
	"changes of a popular history": {
		clients: 16, small: 300, large: 5000, conversations: true, prepare: popularHistory, answers: map[string]bool{"200": true},
	},
	"searches for descendants": {
		clients: 16, small: 300, large: 3000, conversations: true, prepare: descendants, answers: map[string]bool{"200": true, "429": false},
	},
	"lists of verdicts on conversations": {
		clients: 16, small: 300, large: 3000, conversations: true, prepare: verdictLists, answers: map[string]bool{"200": true, "429": false},
	},
	"deletions of conversations with turns": {
		clients: 4, small: 5, large: 20, conversations: true, prepare: deletions, answers: map[string]bool{"200": true},
	},
}

// conversationObject returns a conversation as JSON. fields are further members of its spec, each followed by a comma.
func conversationObject(id, fields string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{%s"conversationID":%q}}`,
		v1alpha1.GroupVersion, v1alpha1.ConversationKind, v1alpha1.ObjectName(id), fields, id)
}

// createConversations creates conversations that end at a turn, and returns their IDs.
func (a *arena) createConversations(n int, head string) []string {
	a.Helper()
	ids := make([]string, n)
	group, ctx := errgroup.WithContext(a.Context())
	group.SetLimit(16)
	for i := range ids {
		ids[i] = fmt.Sprintf("conv_%d", i)
		group.Go(func() error {
			return a.attacker.createConversation(ctx, ids[i], fmt.Sprintf(`"headResponseID":%q,`, head))
		})
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
	return ids
}

func (t *tenant) createConversation(ctx context.Context, id, fields string) error {
	return t.createOf(ctx, kubeclient.Conversations, t.namespace, conversationObject(id, fields))
}

// patchConversation changes members of a conversation's spec.
func (t *tenant) patchConversation(ctx context.Context, id, spec string) error {
	return t.kube.Patch("application/merge-patch+json").Namespace(t.namespace).Resource(kubeclient.Conversations).Name(v1alpha1.ObjectName(id)).
		SetHeader("Accept", kubeclient.MetadataOnly).MaxRetries(0).Body([]byte(`{"spec":{` + spec + `}}`)).Do(ctx).Error()
}

// resolved returns a request for an object of a resource of the resolve API.
func (t *tenant) resolved(resource, name string) *rest.Request {
	return t.kube.Get().AbsPath("/apis", resolvev1alpha1.GroupVersion.String(), "namespaces", t.namespace, resource, name).MaxRetries(0)
}

// asks returns a request that is answered as fast as possible.
func (a *arena) asks(request func(n int) *rest.Request) request {
	return func(ctx context.Context, n int) (string, int, error) {
		_, err := kubeclient.Read(ctx, request(n))
		answer, err := answerOf(err)
		return answer, 1, err
	}
}

// longConversation reads the items of a conversation of size turns. The comparison reads those of its last turn.
func longConversation(a *arena, size int) (hostile, harmless request) {
	id := a.createConversations(1, a.chainOf("long", size, "", bodiesOf(4<<10)))[0]
	items := func() *rest.Request { return a.attacker.resolved(resolvev1alpha1.ConversationItemsResource, id) }
	return a.asks(func(int) *rest.Request { return items().Param("limit", "1000") }), a.asks(func(int) *rest.Request { return items().Param("last", "1") })
}

// searches look for the first turn in a history of size turns, as a rollback does. The comparison reads the last turn.
func searches(a *arena, size int) (hostile, harmless request) {
	id := a.createConversations(1, a.chainOf("long", size, "", ok))[0]
	turns := func() *rest.Request {
		return a.attacker.resolved(resolvev1alpha1.ConversationsResource, id).Param("history", "true").Param("limit", "1")
	}
	return a.asks(func(int) *rest.Request { return turns().Param("after", history.FollowingTurns("resp_long_0")) }), a.asks(func(int) *rest.Request { return turns() })
}

// manyConversations lists size conversations. The comparison lists one.
func manyConversations(a *arena, size int) (hostile, harmless request) {
	a.createConversations(size, a.chainOf("short", 1, "", ok))
	lists := func() *rest.Request {
		return a.attacker.resolved(resolvev1alpha1.ConversationListsResource, resolvev1alpha1.AllConversations)
	}
	return a.asks(func(int) *rest.Request { return lists().Param("limit", "1000").Param("sort", "activity") }),
		a.asks(func(int) *rest.Request { return lists().Param("limit", "1") })
}

// longID returns the ID of a conversation, as long as the CRD accepts, which differs from others at its end.
func longID(i int) string {
	number := fmt.Sprintf("%09d", i)
	return "conv_" + strings.Repeat("\U0001f600", 512-len("conv_")-len(number)) + number
}

// createLong creates size conversations with the longest IDs.
func (a *arena) createLong(size int, fields func(i int) string) {
	a.Helper()
	group, ctx := errgroup.WithContext(a.Context())
	group.SetLimit(16)
	for i := range size {
		group.Go(func() error { return a.attacker.createConversation(ctx, longID(i), fields(i)) })
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
}

// descendants looks for all below the first of a chain of size conversations. The comparison lists its children.
func descendants(a *arena, size int) (hostile, harmless request) {
	a.createLong(size, func(i int) string {
		if i == 0 {
			return ""
		}
		return fmt.Sprintf(`"parentConversationID":%q,`, longID(i-1))
	})
	lists := func() *rest.Request {
		return a.attacker.resolved(resolvev1alpha1.ConversationListsResource, resolvev1alpha1.AllConversations).
			Param("parentConversationID", longID(0)).Param("limit", "1")
	}
	return a.asks(func(int) *rest.Request { return lists().Param("descendants", "true") }), a.asks(func(int) *rest.Request { return lists() })
}

// verdictLists lists the verdicts on size conversations whose heads are reserved. The comparison lists one.
func verdictLists(a *arena, size int) (hostile, harmless request) {
	a.createLong(size, func(i int) string {
		return fmt.Sprintf(`"headResponseID":%q,"baseResponseID":%q,"reservation":{"durationSeconds":600},`, longID(i), longID(i+1))
	})
	lists := func() *rest.Request {
		return a.attacker.kube.Get().AbsPath("/apis", resolvev1alpha1.GroupVersion.String(), "namespaces", a.attacker.namespace,
			resolvev1alpha1.ConversationVerdictsResource).MaxRetries(0)
	}
	return a.asks(func(int) *rest.Request { return lists().Param("limit", "10000") }), a.asks(func(int) *rest.Request { return lists().Param("limit", "1") })
}

// movingHeads moves the heads of size conversations to and fro between the ends of a long chain. The comparison changes their titles.
func movingHeads(a *arena, size int) (hostile, harmless request) {
	last := a.chainOf("long", 10*size, "", ok)
	ids := a.createConversations(size, last)
	patches := func(spec func(n int) string) request {
		return func(ctx context.Context, n int) (string, int, error) {
			answer, err := answerOf(a.attacker.patchConversation(ctx, ids[n%size], spec(n/size)))
			return answer, 1, err
		}
	}
	return patches(func(n int) string { return fmt.Sprintf(`"headResponseID":%q`, []string{"resp_long_0", last}[n%2]) }),
		patches(func(n int) string { return fmt.Sprintf(`"title":"title %d"`, n) })
}

// popularHistory flips the root of a chain at whose end size conversations end. The comparison flips a turn that nothing continues.
func popularHistory(a *arena, size int) (hostile, harmless request) {
	const turns = 900 // fewer than --max-depth
	a.createConversations(size, a.chainOf("long", turns, "", ok))
	a.chainOf("lone", 1, "", ok)
	flips := func(id string) request {
		return func(ctx context.Context, n int) (string, int, error) {
			answer, err := answerOf(a.attacker.patch(ctx, a.attacker.namespace, id, []string{"failed", "completed"}[n%2]))
			return answer, 1, err
		}
	}
	return flips("resp_long_0"), flips("resp_lone_0")
}

// deletions deletes conversations with size turns each. The comparison archives them.
func deletions(a *arena, size int) (hostile, harmless request) {
	to := func(state string) request {
		return func(ctx context.Context, _ int) (string, int, error) {
			id := fmt.Sprintf("conv_%d", a.victim.ids.next())
			turns := make([]string, size)
			for i := range turns {
				turns[i] = fmt.Sprintf("resp_of_%s_%d", id, i)
				if err := a.attacker.create(ctx, session(turns[i], fmt.Sprintf(`"conversationID":%q,%s`, id, ok))); err != nil {
					return "", 1, err
				}
			}
			if err := a.attacker.createConversation(ctx, id, ""); err != nil {
				return "", 1, err
			}
			answer, err := answerOf(a.attacker.patchConversation(ctx, id, fmt.Sprintf(`"state":%q`, state)))
			return answer, 1, err
		}
	}
	return to(store.ConversationDeleting), to(store.ConversationArchived)
}

// conversing is how a victim has conversations with the library.
type conversing struct {
	*tenant
	mu sync.Mutex
	// of are the conversations, by their last turns.
	of map[string]string
	// turns are the numbers of turns of the conversations.
	turns map[string]int
}

func newConversing(t *tenant) *conversing {
	return &conversing{tenant: t, of: map[string]string{}, turns: map[string]int{}}
}

// save is a victim's save. The first turn begins a conversation.
func (c *conversing) save(ctx context.Context, id, previous string) (string, error) {
	c.mu.Lock()
	conversationID := c.of[previous]
	c.mu.Unlock()
	if previous == "" {
		conversationID = "conv_of_" + id
		if _, err := c.store.Conversations().Create(ctx, &store.Conversation{ConversationID: conversationID}); err != nil {
			return "", err
		}
	}
	_, err := c.store.Conversations().Append(ctx, conversationID, testturn.Make(id, ""), store.AppendOptions{ExpectedPreviousResponseID: &previous})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[id] = conversationID
	c.turns[conversationID]++
	return id, nil
}

// resolve is a victim's resolve.
func (c *conversing) resolve(ctx context.Context, id string) (int, error) {
	c.mu.Lock()
	conversationID := c.of[id]
	c.mu.Unlock()
	loaded, err := c.store.Conversations().Load(ctx, conversationID, store.ResolveOptions{})
	if err != nil {
		return 0, err
	}
	return len(loaded.Turns), nil
}

// check waits until the status of each conversation is right, and another one is deleted with its turns.
func (c *conversing) check(a *arena) {
	a.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, turns := range c.turns {
		testutil.Eventually(a, func(ctx context.Context) error {
			name := types.NamespacedName{Namespace: c.namespace, Name: v1alpha1.ObjectName(id)}
			raw, err := kubeclient.GetRaw(ctx, c.kube, kubeclient.Conversations, name)
			if err != nil {
				return err
			}
			verdict := gjson.GetBytes(raw, `status.conditions.#(type=="HeadResolved").status`).Str
			if got := gjson.GetBytes(raw, "status.turns").Int(); got != int64(turns) || verdict != "True" {
				return fmt.Errorf("%s has %d turns and the verdict %q, want %d", id, got, verdict, turns)
			}
			return nil
		})
	}
	id := fmt.Sprintf("conv_deleted_%d", a.victim.ids.next())
	if err := c.deleted(a.Context(), id); err != nil {
		a.Fatalf("the victim: %v", err)
	}
	testutil.Eventually(a, func(ctx context.Context) error {
		_, err := c.store.Conversations().Get(ctx, id)
		if errors.Is(err, store.ErrConversationNotFound) {
			_, err = c.store.Get(ctx, "resp_of_"+id)
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
		}
		return fmt.Errorf("%s is not deleted with its turn (%w)", id, err)
	})
}

// deleted makes a conversation with one turn, and deletes both.
func (c *conversing) deleted(ctx context.Context, id string) error {
	conversations := c.store.Conversations()
	if _, err := conversations.Create(ctx, &store.Conversation{ConversationID: id}); err != nil {
		return err
	}
	if _, err := conversations.Append(ctx, id, testturn.Make("resp_of_"+id, ""), store.AppendOptions{}); err != nil {
		return err
	}
	return conversations.Delete(ctx, id, store.DeleteConversationOptions{Turns: true})
}
