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

package sessions

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
)

// conversationIDs include those whose object name is a hash, and one that is the object name of another.
var conversationIDs = []string{"", "conv_1", "conv.1", "conv/1", "conv"}

// listedOf returns the response IDs of the stored objects that are listed in a conversation, in order.
func listedOf(stored map[string]*v1alpha1.ResponseSession, conversationID string) []string {
	var listed []*v1alpha1.ResponseSession
	for _, o := range stored {
		if o.Spec.ConversationID == conversationID && o.DeletionTimestamp == nil && o.Name == v1alpha1.ObjectName(o.Spec.ResponseID) {
			listed = append(listed, o)
		}
	}
	created := func(o *v1alpha1.ResponseSession) time.Time {
		if o.Spec.CreatedAt == nil {
			return time.Time{}
		}
		return o.Spec.CreatedAt.Time
	}
	slices.SortFunc(listed, func(a, b *v1alpha1.ResponseSession) int {
		return cmp.Or(created(a).Compare(created(b)), cmp.Compare(a.Spec.ResponseID, b.Spec.ResponseID))
	})
	var ids []string
	for _, o := range listed {
		ids = append(ids, o.Spec.ResponseID)
	}
	return ids
}

// pagesOf returns the response IDs on all pages of a conversation of the view.
func pagesOf(t *rapid.T, v *View, conversationID string, options driver.ListOptions) (ids []string) {
	name := v1alpha1.ObjectName(conversationID)
	for more := true; more; more = options.After != "" {
		q, err := sortedlist.New("ns", name, options)
		if err != nil {
			t.Fatal(err)
		}
		var page []*Record
		page, options.After = sortedlist.Cut(q, v.List("ns", name, q, q.Limit+1), (*Record).Position)
		for _, r := range page {
			ids = append(ids, r.Turn.ID)
		}
	}
	return ids
}

// TestConversations feeds the view possible events of the watch, and compares its lists with the objects stored then.
func TestConversations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewView(64, time.Hour)
		s := (*store)(v)
		stored := map[string]*v1alpha1.ResponseSession{}
		version := 0
		draw := func(t *rapid.T) *v1alpha1.ResponseSession {
			version++
			o := object(fmt.Sprint("resp_", rapid.IntRange(0, 9).Draw(t, "id")), "", version)
			o.Generation = int64(version)
			o.Spec.ConversationID = rapid.SampledFrom(conversationIDs).Draw(t, "conversation")
			if seconds := rapid.Int64Range(-1, 3).Draw(t, "created"); seconds >= 0 {
				o.Spec.CreatedAt = new(metav1.Unix(1_700_000_000+seconds, 0))
			}
			if rapid.IntRange(0, 4).Draw(t, "misnamed") == 0 {
				o.Spec.ResponseID += "x"
			}
			if rapid.IntRange(0, 4).Draw(t, "deleting") == 0 {
				deleting(o)
			}
			if rapid.IntRange(0, 4).Draw(t, "unreadable") == 0 {
				o.Spec.Format = v1alpha1.MaxFormat + 1
			}
			return o
		}
		events := eventsOf(s, stored, draw)
		events["delete and create again during an interruption"] = func(t *rapid.T) {
			o := draw(t)
			o.UID = types.UID(fmt.Sprint("uid", version))
			stored[o.Name] = o
			replace(s, version, valuesOf(stored)...)
		}
		events["list"] = func(t *rapid.T) {
			clear(stored)
			for range rapid.IntRange(0, 10).Draw(t, "objects") {
				o := draw(t)
				stored[o.Name] = o
			}
			replace(s, version, valuesOf(stored)...)
		}
		events[""] = func(t *rapid.T) {
			limit := rapid.IntRange(1, 4).Draw(t, "limit")
			for _, id := range conversationIDs[1:] {
				want := listedOf(stored, id)
				got := pagesOf(t, v, id, driver.ListOptions{Limit: limit})
				if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("turns of %q (-want +got):\n%s", id, diff)
				}
				slices.Reverse(want)
				got = pagesOf(t, v, id, driver.ListOptions{Limit: limit, Order: driver.OrderDescending})
				if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("turns of %q, newest first (-want +got):\n%s", id, diff)
				}
				known := v.Conversation("ns", v1alpha1.ObjectName(id))
				if (known != nil) != (len(want) > 0) || known != nil && known.ID != id {
					t.Fatalf("conversation %q is %+v", id, known)
				}
			}
			v.read("ns", func(ns *namespaceView) { checkShared(t, ns) })
		}
		t.Repeat(events)
	})
}

// checkShared checks that each conversation is in memory once, and that no session is listed that is not in the view.
func checkShared(t *rapid.T, ns *namespaceView) {
	known := map[string]*Conversation{}
	listed := 0
	for r := range ns.all() {
		if !r.isListed() {
			continue
		}
		listed++
		c := r.Listing.Conversation
		if first := known[c.ID]; first != nil && first != c {
			t.Fatalf("conversation %q is in memory twice", c.ID)
		}
		known[c.ID] = c
	}
	if tree := ns.conversations.tree; tree != nil && tree.Len() != listed {
		t.Fatalf("%d sessions are listed, of %d", tree.Len(), listed)
	}
}

func valuesOf(stored map[string]*v1alpha1.ResponseSession) []*v1alpha1.ResponseSession {
	var objects []*v1alpha1.ResponseSession
	for _, o := range stored {
		objects = append(objects, o)
	}
	return objects
}

// TestLongConversation: a conversation of many sessions stays in order while they are added in any order, replaced and removed.
func TestLongConversation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var c conversations
	stored := map[string]*Record{}
	for range 5000 {
		id := fmt.Sprint("resp_", random.IntN(1000))
		if old := stored[id]; old != nil {
			c.remove(old)
			delete(stored, id)
		}
		if random.IntN(4) > 0 {
			r := &Record{Listing: Listing{Conversation: &Conversation{ID: "c", Name: "c"}, CreatedAt: int64(random.IntN(20))}}
			r.Turn.ID = id
			stored[id] = r
			c.set(r)
		}
	}
	want := slices.SortedFunc(maps.Values(stored), func(a, b *Record) int { return a.Position().Compare(b.Position()) })
	q, err := sortedlist.New("ns", "c", driver.ListOptions{Limit: len(want)})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.find("c", q, len(want)+1); !slices.Equal(got, want) {
		t.Errorf("got %d sessions, want %d in order", len(got), len(want))
	}
	q.Descending, q.After = true, want[len(want)/2].Position()
	want = want[:len(want)/2]
	slices.Reverse(want)
	if got := c.find("c", q, len(want)+1); !slices.Equal(got, want) {
		t.Errorf("got %d sessions before one, want %d in reverse order", len(got), len(want))
	}
}

// TestListing: a session is listed with what is known of it, whatever its object contains.
func TestListing(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want Listing
	}{
		"nothing":            {`{"responseID":"a"}`, Listing{nil, sortedlist.Unknown, sortedlist.Unknown}},
		"no conversation":    {`{"responseID":"a","createdAt":"1970-01-01T00:00:01Z"}`, Listing{nil, 1, sortedlist.Unknown}},
		"odd conversation":   {`{"responseID":"a","conversationID":["c_1"]}`, Listing{nil, sortedlist.Unknown, sortedlist.Unknown}},
		"no times":           {`{"responseID":"a","conversationID":"c_1"}`, Listing{&Conversation{"c_1", "c.1"}, sortedlist.Unknown, sortedlist.Unknown}},
		"hashed":             {`{"responseID":"a","conversationID":"c.1"}`, Listing{&Conversation{"c.1", v1alpha1.ObjectName("c.1")}, sortedlist.Unknown, sortedlist.Unknown}},
		"times":              {`{"responseID":"a","conversationID":"c","createdAt":"1970-01-01T00:00:01Z","completedAt":"1970-01-01T01:00:02+01:00"}`, Listing{&Conversation{"c", "c"}, 1, 2}},
		"before 1970":        {`{"responseID":"a","conversationID":"c","createdAt":"1969-12-31T23:59:59Z"}`, Listing{&Conversation{"c", "c"}, -1, sortedlist.Unknown}},
		"not times":          {`{"responseID":"a","conversationID":"c","createdAt":"today","completedAt":5}`, Listing{&Conversation{"c", "c"}, sortedlist.Unknown, sortedlist.Unknown}},
		"another year, UTC":  {`{"responseID":"a","conversationID":"c","createdAt":"9999-12-31T23:59:59-01:00"}`, Listing{&Conversation{"c", "c"}, sortedlist.Unknown, sortedlist.Unknown}},
		"unreadable, listed": {`{"responseID":"a","conversationID":"c","format":9,"createdAt":"1970-01-01T00:00:01Z"}`, Listing{&Conversation{"c", "c"}, 1, sortedlist.Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(`{"metadata":{"name":"a","namespace":"ns"},"spec":` + tc.spec + `}`)
			r := NewRecord(gjson.Parse(jsonvalue.Text(raw)), nil)
			clear(raw) // the watch reuses its memory
			if diff := gocmp.Diff(tc.want, r.Listing); diff != "" {
				t.Errorf("listing (-want +got):\n%s", diff)
			}
			want := ""
			if tc.want.Conversation != nil {
				want = tc.want.Conversation.Name
			}
			if got := r.ConversationName(); got != want {
				t.Errorf("got the conversation %q, want %q", got, want)
			}
		})
	}
}
