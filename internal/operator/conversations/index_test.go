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

package conversations

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/store/driver"
)

func queryOf(t testing.TB, options driver.ConversationListOptions) conversationlist.Query {
	t.Helper()
	q, err := conversationlist.New("ns", options.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// listable returns a conversation that can be listed, with these times in seconds.
func listable(id, user, parent, state string, created, updated, activity int) *v1alpha1.Conversation {
	at := func(seconds int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)) }
	c := conversation("ns", v1alpha1.ObjectName(id), 1, "", "")
	c.Spec.ConversationID, c.Spec.UserID, c.Spec.ParentConversationID, c.Spec.State = id, user, parent, state
	c.CreationTimestamp, c.ManagedFields = at(created), []metav1.ManagedFieldsEntry{{Time: new(at(updated))}}
	c.Status.LastActivityTime = new(at(activity))
	return c
}

// TestList feeds the view events, and compares the pages of its lists with the stored conversations.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
		stored := map[string]*v1alpha1.Conversation{}
		ids := []string{"a", "conv_1", "B", "c.1", "conv_2"}
		seconds := rapid.SampledFrom([]int{0, 1, 2, 3, 1 << 33}) // the last one is later than a view can keep
		version := 0
		draw := func(t *rapid.T) *v1alpha1.Conversation {
			c := listable(rapid.SampledFrom(ids).Draw(t, "id"), rapid.SampledFrom([]string{"", "maria", "ada"}).Draw(t, "user"),
				rapid.SampledFrom([]string{"", "a", "conv_1", "B", "none"}).Draw(t, "parent"),
				rapid.SampledFrom(driver.ConversationStates).Draw(t, "state"), seconds.Draw(t, "created"), seconds.Draw(t, "updated"), seconds.Draw(t, "activity"))
			version++
			c.ResourceVersion = fmt.Sprint(version)
			if rapid.IntRange(0, 5).Draw(t, "deleting") == 0 {
				c.DeletionTimestamp = new(metav1.NewTime(start))
			}
			if rapid.IntRange(0, 5).Draw(t, "misnamed") == 0 {
				c.Spec.ConversationID = "Other"
			}
			return c
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				c := draw(t)
				stored[c.Name] = c
				v.set(recordOf(c))
			},
			"remove": func(t *rapid.T) {
				c := draw(t)
				delete(stored, c.Name)
				v.remove(recordOf(c))
			},
			"list": func(t *rapid.T) {
				clear(stored)
				var list []*Record
				for range rapid.IntRange(0, 5).Draw(t, "objects") {
					if c := draw(t); stored[c.Name] == nil {
						stored[c.Name] = c
						list = append(list, recordOf(c))
					}
				}
				v.replace(list)
			},
			"": func(t *rapid.T) {
				options := driver.ConversationListOptions{
					UserID:               rapid.SampledFrom([]string{"", "maria", "ada", "nobody"}).Draw(t, "user"),
					ParentConversationID: rapid.SampledFrom([]string{"", "a", "conv_1", "B", "none"}).Draw(t, "parent"),
					States:               rapid.SliceOf(rapid.SampledFrom(driver.ConversationStates)).Draw(t, "states"),
					Sort:                 rapid.SampledFrom([]string{"created", "updated", "activity"}).Draw(t, "sort"),
					Order:                rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(t, "order"),
					Limit:                rapid.IntRange(1, 6).Draw(t, "limit"),
				}
				options.Descendants = options.ParentConversationID != "" && rapid.Bool().Draw(t, "descendants")
				want := expected(stored, options.WithDefaults())
				var got []string
				for more := true; more; more = options.After != "" {
					q, err := conversationlist.New("ns", options.WithDefaults())
					if err != nil {
						t.Fatal(err)
					}
					most := rapid.IntRange(1, 6).Draw(t, "most")
					page, err := list(v, q)
					page = page.Cut(q, most)
					if err != nil || page.Next != "" && len(page.Records) != min(options.Limit, most) {
						t.Fatalf("got a page of %d conversations and %v", len(page.Records), err)
					}
					for _, r := range page.Records {
						got = append(got, r.ID)
					}
					options.After = page.Next
				}
				if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("listed with %+v (-want +got):\n%s", options, diff)
				}
			},
		})
	})
}

// list returns a page, as the resolve API does.
func list(v *View, q conversationlist.Query) (Page, error) {
	if !q.Selection.Descendants {
		return v.List("ns", q), nil
	}
	search := v.Search("ns", q)
	for {
		switch more, err := search.Step(2); {
		case err != nil:
			return Page{}, err
		case !more:
			return search.Page(), nil
		}
	}
}

// expected returns the IDs of the stored conversations that a list has.
func expected(stored map[string]*v1alpha1.Conversation, o driver.ConversationListOptions) (ids []string) {
	var listed []*v1alpha1.Conversation
	parents := map[string]string{}
	for _, c := range stored {
		if c.DeletionTimestamp == nil && c.Spec.ConversationID != "Other" {
			listed, parents[c.Spec.ConversationID] = append(listed, c), c.Spec.ParentConversationID
		}
	}
	isBelow := func(id string) bool {
		seen := map[string]bool{}
		for at := id; !seen[at]; {
			seen[at] = true
			parent, found := parents[at]
			if !found || parent == "" || parent == id && parent != o.ParentConversationID {
				return false
			}
			if parent == o.ParentConversationID {
				return id != parent
			}
			at = parent
		}
		return false
	}
	listed = slices.DeleteFunc(listed, func(c *v1alpha1.Conversation) bool {
		spec := &c.Spec
		return o.UserID != "" && spec.UserID != o.UserID || !slices.Contains(o.States, spec.State) ||
			o.ParentConversationID != "" && !o.Descendants && spec.ParentConversationID != o.ParentConversationID ||
			o.Descendants && !isBelow(spec.ConversationID)
	})
	at := func(c *v1alpha1.Conversation) int64 {
		created := c.CreationTimestamp.Unix()
		switch o.Sort {
		case driver.SortUpdated:
			return max(created, c.ManagedFields[0].Time.Unix())
		case driver.SortActivity:
			return max(created, c.Status.LastActivityTime.Unix())
		}
		return created
	}
	slices.SortFunc(listed, func(a, b *v1alpha1.Conversation) int {
		if o.Order == driver.OrderDescending {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Spec.ConversationID, b.Spec.ConversationID))
	})
	for _, c := range listed {
		ids = append(ids, c.Spec.ConversationID)
	}
	return ids
}

// TestSearchSteps: a search visits as many conversations as a step may, unless one has more children.
func TestSearchSteps(t *testing.T) {
	v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
	parent := "root"
	for i := range 11 {
		id := fmt.Sprint("c", i)
		v.set(recordOf(listable(id, "", parent, driver.ConversationActive, i, i, i)))
		if parent = id; i >= 8 {
			parent = "c7" // which has three children
		}
	}
	search := v.Search("ns", queryOf(t, driver.ConversationListOptions{ParentConversationID: "root", Descendants: true, Limit: 3}))
	for step, want := range []struct {
		found int
		more  bool
	}{{4, true}, {8, true}, {11, false}, {11, false}} {
		more, err := search.Step(4)
		if err != nil || len(search.Found()) != want.found || more != want.more {
			t.Errorf("step %d: %d found, more: %t, %v; want %+v", step, len(search.Found()), more, err, want)
		}
	}
}

// TestTooManyDescendants: a list of more descendants than the limit is an error, and one of as many is none.
func TestTooManyDescendants(t *testing.T) {
	v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
	add := func(i int) { // half are children, and the others a chain
		parent := "root"
		if i%2 == 0 {
			parent = fmt.Sprint("c", max(i-2, 0))
		}
		v.set(recordOf(listable(fmt.Sprint("c", i), "", parent, driver.ConversationActive, i, i, i)))
	}
	v.set(recordOf(listable("c0", "", "root", driver.ConversationArchived, 0, 0, 0)))
	for i := range driver.MaxDescendants - 1 {
		add(i + 1)
	}
	q := queryOf(t, driver.ConversationListOptions{ParentConversationID: "root", Descendants: true, Limit: 3})
	if page, err := list(v, q); err != nil || len(page.Records) != 3 || page.Records[0].ID != "c9999" {
		t.Errorf("got %+v and %v, want a page", page, err)
	}
	add(driver.MaxDescendants)
	if page, err := list(v, q); !errors.Is(err, driver.ErrConversationLimitExceeded) {
		t.Errorf("got %+v and %v, want that there are too many", page, err)
	}
}

// BenchmarkList reads pages of 100 of the active conversations, of which there are as many as archived ones, and shows the memory of each
// conversation.
func BenchmarkList(b *testing.B) {
	for _, many := range []int{10, 1000, 100_000} {
		before := heap()
		v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
		for i := range 2 * many {
			state := driver.ConversationStates[i%2]
			c := listable(fmt.Sprintf("conv_%032d", i), fmt.Sprintf("user_%d", i%1000/2), "", state, i, i+1, i+2)
			c.Spec.Title, c.Spec.HeadResponseID = "What to wear for an evening walk", fmt.Sprintf("resp_%032d", i)
			v.set(recordOf(c))
		}
		perConversation := float64(heap()-before) / float64(2*many)
		for name, options := range map[string]driver.ConversationListOptions{
			"all":      {},
			"activity": {Sort: driver.SortActivity, Order: driver.OrderAscending},
			"user":     {UserID: "user_0"},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, many), func(b *testing.B) {
				options.States = []string{driver.ConversationActive}
				q := queryOf(b, options)
				for b.Loop() {
					if page, err := list(v, q); err != nil || len(page.Records) < min(many/500, 100) || len(page.Records) == 0 {
						b.Fatal(len(page.Records), err)
					}
				}
				b.ReportMetric(perConversation, "B/conversation")
			})
		}
		b.Run(fmt.Sprintf("change/%d", many), func(b *testing.B) {
			c := listable(fmt.Sprintf("conv_%032d", 0), "user_0", "", driver.ConversationActive, 0, 0, 0)
			for i := 0; b.Loop(); i++ {
				c.ResourceVersion = fmt.Sprint(2 + i)
				v.set(recordOf(c))
			}
		})
		runtime.KeepAlive(v)
	}
}

// heap returns the size of the live objects.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
