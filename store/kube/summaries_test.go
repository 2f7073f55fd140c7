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
package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

func (c *conversations) saveSummary(ctx context.Context, id string, summary driver.Summary) error {
	_, err := driver.Retry(ctx, func() (struct{}, error) { return struct{}{}, c.SaveSummary(ctx, c.namespace, id, summary) })
	return err
}

func (c *conversations) wantSummaries(t *testing.T, id string, want ...driver.Summary) {
	t.Helper()
	got, err := c.Summaries(t.Context(), c.namespace, id)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summaries of %q (-want +got):\n%s", id, diff)
	}
}

// patch changes the object of a conversation with a JSON patch.
func (c *conversations) patch(t *testing.T, id, operations string) {
	t.Helper()
	object := &v1alpha1.Conversation{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.ObjectName(id)}}
	if err := env.Client.Patch(t.Context(), object, client.RawPatch(types.JSONPatchType, []byte(operations))); err != nil {
		t.Fatal(err)
	}
}

// summaryOf returns the object of a summary, with an owner that has a UID, or without one.
func summaryOf(namespace, id, name string, summary driver.Summary, owner *v1alpha1.Conversation) *v1alpha1.ConversationSummary {
	object := &v1alpha1.ConversationSummary{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ConversationSummarySpec{
			ConversationID: id, StartTurn: int32(summary.StartTurn), EndTurn: int32(summary.EndTurn), Content: summary.Content,
		},
	}
	if owner != nil {
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ConversationKind, Name: owner.Name, UID: owner.UID,
		}}
	}
	return object
}

// TestSummaries: summaries are stored under any ID, one for the same turns, and returned in their order.
func TestSummaries(t *testing.T) {
	c := openConversations(t)
	for _, id := range strangeIDs {
		c.mustCreate(t, active(id))
		c.wantSummaries(t, id)
		first := driver.Summary{StartTurn: 0, EndTurn: 10, Content: "They talked about <" + id + ">.", TokenCount: 7, CreatedAt: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
		longer, later := driver.Summary{EndTurn: 20, Content: "a"}, driver.Summary{StartTurn: 9, EndTurn: 10, Content: strings.Repeat("é", driver.MaxSummaryLength)}
		for _, summary := range []driver.Summary{later, first, longer, first} {
			if err := c.saveSummary(t.Context(), id, summary); err != nil {
				t.Errorf("%q: %v", id, err)
			}
		}
		for _, different := range []driver.Summary{
			{EndTurn: 10, Content: "They argued.", TokenCount: 7, CreatedAt: first.CreatedAt},
			{EndTurn: 10, Content: first.Content, CreatedAt: first.CreatedAt},
			{EndTurn: 10, Content: first.Content, TokenCount: 7},
		} {
			err := c.saveSummary(t.Context(), id, different)
			if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.CodeConflict || e.ConversationID != id || e.Retryable {
				t.Errorf("%q: got %v, want a conflict", id, err)
			}
		}
		c.wantSummaries(t, id, first, longer, later)
	}
}

// TestSummariesAreDeleted: a summary is deleted with its conversation, and never belongs to another one with the same ID.
func TestSummariesAreDeleted(t *testing.T) {
	c := openConversations(t)
	summary, other := driver.Summary{EndTurn: 1, Content: "before"}, driver.Summary{EndTurn: 2, Content: "before"}
	c.mustCreate(t, active("conv_1"))
	for _, s := range []driver.Summary{summary, other} {
		if err := c.saveSummary(t.Context(), "conv_1", s); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.remove(t.Context(), "conv_1"); err != nil {
		t.Fatal(err)
	}
	c.mustCreate(t, active("conv_1"))
	c.wantSummaries(t, "conv_1") // garbage collection may not have deleted the others yet
	summary.Content = "after"
	if err := c.saveSummary(t.Context(), "conv_1", summary); err != nil {
		t.Fatal(err)
	}
	c.wantSummaries(t, "conv_1", summary)
	testutil.Eventually(t, func(ctx context.Context) error {
		stored := &v1alpha1.ConversationSummaryList{}
		err := env.Client.List(ctx, stored, client.InNamespace(c.namespace))
		if err == nil && len(stored.Items) != 1 {
			err = fmt.Errorf("%d summaries are stored, want 1", len(stored.Items))
		}
		return err
	})
}

// TestForeignSummaries: objects that are not summaries of the conversation do not affect those that are.
func TestForeignSummaries(t *testing.T) {
	c := openConversations(t)
	c.mustCreate(t, active("Conv"))
	owner := &v1alpha1.Conversation{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.ObjectName("Conv")}, owner); err != nil {
		t.Fatal(err)
	}
	summary := driver.Summary{EndTurn: 1, Content: "a"}
	if err := c.saveSummary(t.Context(), "Conv", summary); err != nil {
		t.Fatal(err)
	}
	for end := range 3 { // without an entry, they would not be read
		c.patch(t, "Conv", fmt.Sprintf(`[{"op":"add","path":"/spec/summaries/-","value":"0-%d"}]`, end+2))
	}
	stranger := strings.Repeat("a", 52)
	for _, object := range []client.Object{
		summaryOf(c.namespace, "Conv", v1alpha1.SummaryName("Conv", v1alpha1.SummaryTurns(0, 2)), driver.Summary{EndTurn: 2, Content: "without an owner"}, nil),
		summaryOf(c.namespace, "Conv", "sha256."+stranger+"-0-1", driver.Summary{EndTurn: 1, Content: "second of the same turns"}, owner),
		summaryOf(c.namespace, "Other", v1alpha1.SummaryName("Conv", v1alpha1.SummaryTurns(0, 3)), driver.Summary{EndTurn: 3, Content: "of another conversation"}, owner),
	} {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	c.wantSummaries(t, "Conv", summary)
	if err := c.saveSummary(t.Context(), "Conv", driver.Summary{EndTurn: 2, Content: "b"}); err == nil || !strings.Contains(err.Error(), "belongs to no conversation: delete it") {
		t.Errorf("got %v, want an error that names the summary without an owner", err)
	}
}

// TestSummariesWithoutEntry: a summary counts if its turns are among those of the conversation, and what is among them need not be stored, as
// after a writer was killed in the middle, or a summary was deleted. Either can be saved again.
func TestSummariesWithoutEntry(t *testing.T) {
	c := openConversations(t)
	c.mustCreate(t, active("conv_1"))
	first, deleted, other := driver.Summary{EndTurn: 1, Content: "a"}, driver.Summary{EndTurn: 2, Content: "b"}, driver.Summary{EndTurn: 2, Content: "c"}
	for _, summary := range []driver.Summary{first, deleted} {
		if err := c.saveSummary(t.Context(), "conv_1", summary); err != nil {
			t.Fatal(err)
		}
	}
	object := summaryOf(c.namespace, "conv_1", v1alpha1.SummaryName("conv_1", v1alpha1.SummaryTurns(0, 2)), deleted, nil)
	if err := env.Client.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	c.wantSummaries(t, "conv_1", first)
	if err := c.saveSummary(t.Context(), "conv_1", other); err != nil {
		t.Fatal(err)
	}
	c.wantSummaries(t, "conv_1", first, other)
	c.patch(t, "conv_1", `[{"op":"remove","path":"/spec/summaries"}]`)
	c.wantSummaries(t, "conv_1")
	if err := c.saveSummary(t.Context(), "conv_1", deleted); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("got %v, want a conflict with what is stored", err)
	}
	c.wantSummaries(t, "conv_1", other)
	if err := c.saveSummary(t.Context(), "conv_1", first); err != nil {
		t.Fatal(err)
	}
	c.wantSummaries(t, "conv_1", first, other)
}

// TestDropEntries: entries without a summary, and those that are there twice, do not use up the number of summaries.
func TestDropEntries(t *testing.T) {
	c := openConversations(t)
	c.mustCreate(t, active("conv_1"))
	first, last := driver.Summary{EndTurn: 1, Content: "a"}, driver.Summary{EndTurn: 1000, Content: "b"}
	if err := c.saveSummary(t.Context(), "conv_1", first); err != nil {
		t.Fatal(err)
	}
	entries := []string{`"0-1"`, `"0-1"`}
	for end := len(entries); end < driver.MaxSummaries; end++ {
		entries = append(entries, fmt.Sprintf(`"0-%d"`, end))
	}
	c.patch(t, "conv_1", `[{"op":"add","path":"/spec/summaries","value":[`+strings.Join(entries, ",")+`]}]`)
	if err := c.saveSummary(t.Context(), "conv_1", last); err != nil {
		t.Fatal(err)
	}
	c.wantSummaries(t, "conv_1", first, last)
	object := &v1alpha1.Conversation{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "conv.1"}, object); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0-1", "0-1000"}, object.Spec.Summaries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestFirstSummaries: writers that save the first summaries of a conversation at once, some of them the same, do not hinder each other, nor
// those that change its head.
func TestFirstSummaries(t *testing.T) {
	c := openConversations(t)
	c.mustCreate(t, active("conv_1"))
	var writers errgroup.Group
	want := make([]driver.Summary, 16)
	for n := range want {
		want[n] = driver.Summary{StartTurn: n, EndTurn: n + 1, Content: "a"}
		for range 2 {
			writers.Go(func() error { return c.saveSummary(t.Context(), "conv_1", want[n]) })
		}
	}
	var head driver.Head
	for n := range 8 {
		next := driver.Head{ResponseID: fmt.Sprintf("resp_%d", n), BaseResponseID: head.ResponseID, Reservation: driver.Reservation{Duration: time.Second}}
		if _, err := c.UpdateConversation(t.Context(), c.namespace, "conv_1", driver.ConversationUpdate{ExpectedHead: &head, Head: &next}); err != nil {
			t.Error(err)
		}
		head = next
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	c.wantSummaries(t, "conv_1", want...)
	if got, err := c.GetConversation(t.Context(), c.namespace, "conv_1"); err != nil || got.Head != head {
		t.Errorf("the head is %+v, %v; want %+v", got, err, head)
	}
}

// TestSummariesMemory: the memory of summaries is counted before it is taken.
func TestSummariesMemory(t *testing.T) {
	c := openConversations(t)
	c.mustCreate(t, active("conv_1"))
	for end := range 3 {
		if err := c.saveSummary(t.Context(), "conv_1", driver.Summary{EndTurn: end + 1, Content: strings.Repeat("a", 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	refused := errors.New("refused")
	var taken int64
	ctx := metered.With(t.Context(), func(bytes int64) error {
		if taken += bytes; taken > 3000 {
			return refused
		}
		return nil
	})
	if _, err := c.Summaries(ctx, c.namespace, "conv_1"); !errors.Is(err, refused) {
		t.Errorf("got %v, want the error of the meter", err)
	}
}
