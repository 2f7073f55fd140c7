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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/memory"
)

func newConversation(t *testing.T) *store.Conversations {
	t.Helper()
	c := memory.New(memory.Options{Namespace: "team"}).Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatalf("Unable to create the conversation: %v", err)
	}
	return c
}

// openAll returns the conversations of several processes that share a store, each with a driver that one of the functions changes.
func openAll(t *testing.T, wrap ...func(d *hooked)) []*store.Conversations {
	t.Helper()
	opened, _, err := driver.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	var all []*store.Conversations
	for _, change := range wrap {
		d := &hooked{Store: opened, Conversations: opened.(driver.Conversations), Lister: opened.(driver.Lister)}
		change(d)
		all = append(all, store.New(d, driver.Options{}).Conversations())
	}
	if _, err := all[0].Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	return all
}

// hooked is a driver whose saves wait, and whose reads of bodies and updates are counted. Updates fail while it is cut off.
type hooked struct {
	driver.Store
	driver.Conversations
	driver.Lister
	save    chan struct{}
	lose    func()                // called by updates, which are conflicts then
	lookUp  func(id string) error // called before a turn is read without its bodies
	updated func()                // called after an update
	cutOff  atomic.Bool
	lost    atomic.Bool // the answer to the next update is
	updates atomic.Int64
	reads   atomic.Int64
}

func (d *hooked) Get(ctx context.Context, namespace, id string) (*driver.Session, error) {
	turn, err := d.Store.Get(ctx, namespace, id)
	if err == nil {
		d.reads.Add(1)
	}
	return turn, err
}

func (d *hooked) Save(ctx context.Context, namespace string, s *driver.Session, o driver.SaveOptions) (string, error) {
	if d.save != nil {
		<-d.save
	}
	return d.Store.Save(context.WithoutCancel(ctx), namespace, s, o)
}

func (d *hooked) UpdateConversation(ctx context.Context, namespace, id string, u driver.ConversationUpdate) (*driver.Conversation, error) {
	d.updates.Add(1)
	if d.lose != nil {
		d.lose()
		return nil, &driver.Error{Code: driver.CodeConflict}
	}
	if d.cutOff.Load() {
		return nil, &driver.Error{Code: driver.CodeUnreachable}
	}
	updated, err := d.Conversations.UpdateConversation(ctx, namespace, id, u)
	if d.updated != nil {
		d.updated()
	}
	if d.lost.CompareAndSwap(true, false) {
		return nil, driver.Again(unreachable)
	}
	return updated, err
}

// unreachable is an error after which the outcome is not known.
var unreachable = &driver.Error{Code: driver.CodeUnreachable, Retryable: true}

func (d *hooked) GetWithoutBodies(ctx context.Context, namespace, id string) (*driver.Session, error) {
	if d.lookUp != nil {
		if err := d.lookUp(id); err != nil {
			return nil, err
		}
	}
	return d.Conversations.GetWithoutBodies(ctx, namespace, id)
}

func none(*hooked) {}

func wantTurns(t *testing.T, c *store.Conversations, want ...string) {
	t.Helper()
	history, err := c.Load(t.Context(), "conv_1", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, history.Turns); diff != "" {
		t.Errorf("Unexpected turns (-want,+got):\n%s", diff)
	}
}

// TestRollbackDuringDeletion: a rollback to a turn whose deletion with another conversation begins meanwhile waits for that. It is not undone, because
// what was after the turn may be deleted already.
func TestRollbackDuringDeletion(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "goes on": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var meanwhile func()
				var opened driver.Store
				all := openAll(t, func(d *hooked) { opened = d.Store }, func(d *hooked) { d.updated = func() { meanwhile() } })
				for _, id := range []string{"a", "b"} {
					if _, err := all[0].Append(t.Context(), "conv_1", testturn.Make(id, ""), store.AppendOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := all[0].Fork(t.Context(), "conv_1", "fork", store.ForkOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, err := all[0].Append(t.Context(), "fork", testturn.Make("x", ""), store.AppendOptions{}); err != nil {
					t.Fatal(err)
				}
				// As in a cluster, Delete returns when the deletion has begun.
				meanwhile = sync.OnceFunc(func() {
					if err := all[0].Delete(t.Context(), "conv_1", store.DeleteConversationOptions{Turns: true}); err != nil {
						t.Error(err)
					}
					if ends {
						time.AfterFunc(time.Second, func() {
							_ = opened.(driver.ConversationDeleter).DeleteConversationTurns(t.Context(), "", "conv_1")
						})
					}
				})
				if _, err := all[1].Rollback(t.Context(), "fork", "b"); errors.Is(err, store.ErrConflict) == ends || ends && err != nil {
					t.Errorf("got %v, want success: %v", err, ends)
				}
				history, err := all[0].Load(t.Context(), "fork", store.ResolveOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string{"a", "b"}, history.Turns); diff != "" {
					t.Errorf("turns (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestLoadOutOfPlace: a turn that was saved out of the place that is reserved for it is not part of the history, even if it has none that could
// be loaded.
func TestLoadOutOfPlace(t *testing.T) {
	s := memory.New(memory.Options{Namespace: "team"})
	c := s.Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(t.Context(), "conv_1", testturn.Make("a", ""), store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reserve(t.Context(), "conv_1", "late", store.ReserveOptions{}); err != nil {
		t.Fatal(err)
	}
	failed := testturn.Make("failed", "")
	failed.Status = store.StatusFailed
	for _, session := range []*store.Session{failed, testturn.Make("late", "failed")} {
		if err := s.Save(t.Context(), session, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wantTurns(t, c, "a")
	if err := s.Delete(t.Context(), "failed", store.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, c, "a")
	if n, err := c.Count(t.Context(), "conv_1"); err != nil || n != 1 {
		t.Errorf("Count: got %d, %v", n, err)
	}
}

// TestCreateIsUndone: a conversation whose head is deleted while it is created is not created, unless another process has continued it.
func TestCreateIsUndone(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, c *store.Conversations)
		want      error
	}{
		"unused": {func(*testing.T, *store.Conversations) {}, store.ErrConversationNotFound},
		"continued": {func(t *testing.T, c *store.Conversations) {
			if _, err := c.Append(t.Context(), "conv_2", testturn.Make("resp_2", ""), store.AppendOptions{}); err != nil {
				t.Error(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			var all []*store.Conversations
			all = openAll(t, none, func(h *hooked) {
				h.lookUp = func(id string) error {
					if looks++; looks < 2 {
						return nil
					}
					tc.meanwhile(t, all[0])
					return driver.NotFound(id)
				}
			})
			if _, err := all[0].Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err := all[1].Create(t.Context(), &store.Conversation{ConversationID: "conv_2", Head: store.Head{ResponseID: "resp_1"}})
			if e := (*store.Error)(nil); !errors.Is(err, store.ErrNotFound) || !errors.As(err, &e) || looks != 2 {
				t.Errorf("got %v after %d looks, want ErrNotFound after 2", err, looks)
			}
			if _, err := all[0].Get(t.Context(), "conv_2"); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestCreateOfUnknownOutcome: a conversation is created although it is not known whether its head is still stored: another process may use it.
func TestCreateOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		all := openAll(t, none, func(h *hooked) {
			h.lookUp = func(string) error {
				if looks++; looks < 2 {
					return nil
				}
				return unreachable
			}
		})
		if _, err := all[0].Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := all[1].Create(t.Context(), &store.Conversation{ConversationID: "conv_2", Head: store.Head{ResponseID: "resp_1"}})
		if !store.IsRetryable(err) {
			t.Errorf("got %v, want a retryable error", err)
		}
		if _, err := all[0].Get(t.Context(), "conv_2"); err != nil {
			t.Error(err)
		}
	})
}

// TestReleaseAfterLostAnswer: a place is given up at once although the answer to its reservation was lost.
func TestReleaseAfterLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := openAll(t, func(h *hooked) { h.lost.Store(true) }, none)
		reservation, err := all[0].Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reservation.Release(t.Context())
		next, err := all[1].Reserve(t.Context(), "conv_1", "resp_2", store.ReserveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		next.Release(t.Context())
	})
}

// TestRollbackFrom: a history that ends with another turn stays, and one that ends with a turn after the given one does not.
func TestRollbackFrom(t *testing.T) {
	c := openAll(t, none)[0]
	appendTurns := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			if _, err := c.Append(t.Context(), "conv_1", testturn.Make(id, ""), store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	rollback := func(last, to string) {
		t.Helper()
		if _, err := c.RollbackFrom(t.Context(), "conv_1", last, to); err != nil {
			t.Fatal(err)
		}
	}
	appendTurns("a", "b")
	rollback("b", "a")
	appendTurns("c")
	rollback("b", "a")
	wantTurns(t, c, "a", "c")
	appendTurns("d")
	rollback("c", "a")
	wantTurns(t, c, "a")
}

// TestReservationEndsWithConversation: a reservation is lost with its next renewal once the conversation is being deleted with its turns.
func TestReservationEndsWithConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openAll(t, none)[0] // something else deletes the turns, as in a cluster
		reservation, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), "conv_1", store.DeleteConversationOptions{Turns: true}); err != nil {
			t.Fatal(err)
		}
		running, cancel := reservation.Context(t.Context())
		defer cancel()
		<-running.Done()
		if err := reservation.Save(t.Context(), testturn.Make("resp_1", "")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
	})
}

// TestReserveAgain: a reservation that is made again for the same turn is not mistaken for the first one.
func TestReserveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := openAll(t, none, none)
		reserve := func(c *store.Conversations, id string) (*store.Reservation, error) {
			return c.Reserve(t.Context(), "conv_1", id, store.ReserveOptions{})
		}
		first, err := reserve(all[0], "resp_a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reserve(all[1], "resp_b"); !errors.Is(err, store.ErrConversationLocked) {
			t.Errorf("got %v, want ErrConversationLocked", err)
		}
		first.Release(t.Context())
		<-time.After(9 * time.Second)
		second, err := reserve(all[0], "resp_a")
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(1100 * time.Millisecond)
		if _, err := reserve(all[1], "resp_b"); !errors.Is(err, store.ErrConversationLocked) {
			t.Errorf("got %v, want ErrConversationLocked", err)
		}
		if err := second.Save(t.Context(), testturn.Make("resp_a", "")); err != nil {
			t.Error(err)
		}
		wantTurns(t, all[0], "resp_a")
	})
}

// TestWaitingCost: an append that waits for another turn reads the bodies of the last one once for each of its versions.
func TestWaitingCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting *hooked
		all := openAll(t, none, func(h *hooked) { waiting = h })
		if _, err := all[0].Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := all[0].Reserve(t.Context(), "conv_1", "resp_2", store.ReserveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		appended := make(chan error)
		go func() {
			_, err := all[1].Append(t.Context(), "conv_1", testturn.Make("resp_3", ""), store.AppendOptions{})
			appended <- err
		}()
		want := int64(1)
		for _, output := range []string{`[]`, `[{"type":"message","role":"assistant","content":[]}]`} {
			<-time.After(20 * time.Second)
			if got := waiting.reads.Load(); got != want {
				t.Errorf("the bodies were read %d times, want %d", got, want)
			}
			turn := testturn.Make("resp_1", "")
			turn.ConversationID, turn.Response = "conv_1", []byte(`{"output":`+output+`}`)
			if _, err := waiting.Store.Save(t.Context(), "", turn, driver.SaveOptions{Overwrite: true}); err != nil {
				t.Fatal(err)
			}
			want++
		}
		if err := r.Save(t.Context(), testturn.Make("resp_2", "")); err != nil {
			t.Fatal(err)
		}
		if err := <-appended; err != nil {
			t.Fatal(err)
		}
		wantTurns(t, all[1], "resp_1", "resp_2", "resp_3")
	})
}

// TestAppendLosesToOthers: an append whose context ends while others get the place is told that the conversation is locked.
func TestAppendLosesToOthers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	all := openAll(t, none, func(h *hooked) { h.lose = cancel })
	if _, err := all[1].Append(ctx, "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); !errors.Is(err, store.ErrConversationLocked) {
		t.Errorf("got %v, want ErrConversationLocked", err)
	}
}

// TestAppendItemsKeepsText: items are stored as they are.
func TestAppendItemsKeepsText(t *testing.T) {
	c := newConversation(t)
	item := json.RawMessage(`{"role":"user","content":"a < b && b > c"}`)
	if _, err := c.AppendItems(t.Context(), "conv_1", []json.RawMessage{item}, store.AppendItemsOptions{}); err != nil {
		t.Fatal(err)
	}
	history, err := c.Load(t.Context(), "conv_1", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]json.RawMessage{item}, history.Items); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

// TestReservationCost: a turn costs one update of the conversation, and one more for each half of the duration that its model runs.
func TestReservationCost(t *testing.T) {
	for run, want := range map[time.Duration]int64{20 * time.Second: 1, 29 * time.Second: 1, 31 * time.Second: 2, 599 * time.Second: 20} {
		t.Run(run.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d *hooked
				c := openAll(t, func(h *hooked) { d = h })[0]
				r, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{Duration: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(run)
				if err := r.Save(t.Context(), testturn.Make("resp_1", "")); err != nil {
					t.Error(err)
				}
				if got := d.updates.Load(); got != want {
					t.Errorf("got %d updates, want %d", got, want)
				}
			})
		})
	}
}

// TestReservationOutage: a reservation survives an outage that ends in time, and its holder learns of one that does not.
func TestReservationOutage(t *testing.T) {
	for name, tc := range map[string]struct {
		outage time.Duration // from 29 s on
		want   error
	}{
		"short": {14 * time.Second, nil}, // it is relied upon until 45 s
		"long":  {17 * time.Second, store.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d *hooked
				c := openAll(t, func(h *hooked) { d = h })[0]
				r, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{Duration: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				running, cancel := r.Context(t.Context())
				defer cancel()
				<-time.After(29 * time.Second)
				d.cutOff.Store(true)
				<-time.After(tc.outage)
				d.cutOff.Store(false)
				<-time.After(29 * time.Second) // with the renewal in time, no other one
				if cause := context.Cause(running); !errors.Is(cause, tc.want) {
					t.Errorf("the run ended with %v, want %v", cause, tc.want)
				}
				r.Release(t.Context())
			})
		})
	}
}

// TestReservationContext: the run of a model ends when its place is lost, and not when its turn is saved or given up.
func TestReservationContext(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(ctx context.Context, c *store.Conversations, r *store.Reservation) error
		want error
	}{
		"rolled back": {func(ctx context.Context, c *store.Conversations, _ *store.Reservation) error {
			_, err := c.Rollback(ctx, "conv_1", "")
			return err
		}, store.ErrConflict},
		"deleted": {func(ctx context.Context, c *store.Conversations, _ *store.Reservation) error {
			return c.Delete(ctx, "conv_1", store.DeleteConversationOptions{})
		}, store.ErrConflict},
		"saved": {func(ctx context.Context, _ *store.Conversations, r *store.Reservation) error {
			return r.Save(ctx, testturn.Make("resp_1", ""))
		}, nil},
		"given up": {func(ctx context.Context, _ *store.Conversations, r *store.Reservation) error {
			r.Release(ctx)
			return nil
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openAll(t, none)[0]
				r, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Release(t.Context())
				running, cancel := r.Context(t.Context())
				defer cancel()
				if err := tc.do(t.Context(), c, r); err != nil {
					t.Fatal(err)
				}
				<-time.After(store.DefaultReservation)
				if cause := context.Cause(running); !errors.Is(cause, tc.want) {
					t.Errorf("the run ended with %v, want %v", cause, tc.want)
				}
			})
		})
	}
}

// TestLateSave: an attempt that has lost its place, and whose turn is stored while another attempt has a new one, replaces no turn.
func TestLateSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow *hooked
		gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
		all := openAll(t, none, func(d *hooked) { slow, d.save = d, gates[0] }, func(d *hooked) { d.save = gates[1] })
		results := []chan error{make(chan error, 1), make(chan error, 1)}
		begin := func(i int) {
			go func() {
				_, err := all[i+1].Append(t.Context(), "conv_1", testturn.Make("resp_a", ""), store.AppendOptions{})
				results[i] <- err
			}()
			synctest.Wait()
		}
		appendTurn := func(id string) {
			t.Helper()
			if _, err := all[0].Append(t.Context(), "conv_1", testturn.Make(id, ""), store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		appendTurn("resp_1")
		begin(0)
		slow.cutOff.Store(true) // it cannot renew its reservation
		appendTurn("resp_2")
		slow.cutOff.Store(false)
		begin(1)
		close(gates[0])
		if err := <-results[0]; !errors.Is(err, store.ErrConflict) {
			t.Errorf("the first attempt: got %v, want ErrConflict", err)
		}
		wantTurns(t, all[0], "resp_1", "resp_2")
		close(gates[1])
		if err := <-results[1]; !errors.Is(err, store.ErrConflict) {
			t.Errorf("the second attempt: got %v, want ErrConflict", err)
		}
		appendTurn("resp_3")
		wantTurns(t, all[0], "resp_1", "resp_2", "resp_3")
	})
}

// TestReleaseKeepsBase: a reservation that is given up changes nothing.
func TestReleaseKeepsBase(t *testing.T) {
	c := openAll(t, none)[0]
	for _, id := range []string{"resp_1", "resp_2"} {
		if _, err := c.Append(t.Context(), "conv_1", testturn.Make(id, ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := c.Get(t.Context(), "conv_1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Reserve(t.Context(), "conv_1", "resp_3", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Release(t.Context())
	after, err := c.Get(t.Context(), "conv_1")
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("error %v (-before,+after):\n%s", err, diff)
	}
}

// TestConversationsUnsupported: a driver need not store conversations.
func TestConversationsUnsupported(t *testing.T) {
	c := store.New(struct{ driver.Store }{}, driver.Options{}).Conversations()
	if _, err := c.Get(t.Context(), "conv_1"); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	if err := c.Delete(t.Context(), "", store.DeleteConversationOptions{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// TestUnanswered: the calls of a turn that need an output.
func TestUnanswered(t *testing.T) {
	const call, output = `{"type":"function_call","call_id":"a"}`, `{"type":"function_call_output","call_id":"a"}`
	for name, tc := range map[string]struct {
		input, output, next string
		want                bool // that the turn can be appended
	}{
		"no calls":            {`"hi"`, `{"type":"message"}`, `"hi"`, true},
		"answered":            {`"hi"`, call, `[` + output + `]`, true},
		"answered by itself":  {`[` + call + `,` + output + `]`, ``, `"hi"`, true},
		"unanswered in input": {`[` + call + `]`, ``, `"hi"`, false},
		"unanswered":          {`"hi"`, call, `[{"type":"message"}]`, false},
		"another call":        {`"hi"`, call, `[{"type":"function_call_output","call_id":"b"}]`, false},
		"made by the engine":  {`"hi"`, `{"type":"web_search_call","id":"ws"}`, `"hi"`, true},
		"null":                {`"hi"`, `{"type":"tool_search_call","call_id":null}`, `"hi"`, true},
		"not in a list":       {`"hi"`, call, `"function_call_output"`, false},
		"not a call":          {`"hi"`, `{"call_id":"a"}`, `"hi"`, true},
		"local shell":         {`"hi"`, `{"type":"local_shell_call","id":"lsh","call_id":"a"}`, `[{"type":"local_shell_call_output","id":"lsh"}]`, true},
		"local shell, call":   {`"hi"`, `{"type":"local_shell_call","id":"lsh","call_id":"a"}`, `[{"type":"local_shell_call_output","id":"a"}]`, true},
		"renamed local shell": {`"hi"`, `{"type":"local_shell_call","id":"lsh","call_id":"a"}`, `[{"type":"local_shell_call_output","id":"b"}]`, true},
		"not a local shell":   {`"hi"`, call, `[{"type":"local_shell_call_output","id":"a"}]`, false},
		"cut off":             {`"hi"`, `{"type":"function_call","call_id":"a","status":"incomplete"}`, `"hi"`, true},
		"twice":               {`"hi"`, call + `,` + call, `[` + output + `]`, true},
		"one of two":          {`"hi"`, call + `,{"type":"custom_tool_call","call_id":"b"}`, `[` + output + `]`, false},
		"compacted":           {`"hi"`, call, `[{"type":"compaction","encrypted_content":"x"},{"role":"user","content":"hi"}]`, true},
		"compacted before":    {`[` + call + `]`, `{"type":"compaction","encrypted_content":"x"}`, `"hi"`, true},
		"a call in the input": {`"hi"`, call, `[` + output + `,{"type":"function_call","call_id":"b"}]`, true},
		"tool search":         {`"hi"`, `{"type":"tool_search_call","call_id":"a"}`, `[{"type":"tool_search_output","call_id":"a"}]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConversation(t)
			first := &store.Session{
				ResponseID: "resp_1", Status: store.StatusCompleted,
				Request: []byte(`{"input":` + tc.input + `}`), Response: []byte(`{"output":[` + tc.output + `]}`),
			}
			if _, err := c.Append(t.Context(), "conv_1", first, store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			h, err := c.Load(t.Context(), "conv_1", store.ResolveOptions{Origins: true})
			if err != nil {
				t.Fatal(err)
			}
			if call := store.UnansweredCall(h, tc.next); (call == "") != tc.want {
				t.Errorf("the call %q has no output, want success: %v", call, tc.want)
			}
			next := &store.Session{ResponseID: "resp_2", Status: store.StatusCompleted, Request: []byte(`{"input":` + tc.next + `}`)}
			if _, err := c.Append(t.Context(), "conv_1", next, store.AppendOptions{}); errors.Is(err, store.ErrInvalid) == tc.want {
				t.Errorf("got %v, want success: %v", err, tc.want)
			}
		})
	}
}

// listing is a driver whose lists are followed by a function.
type listing struct {
	driver.Store
	driver.Conversations
	driver.Lister
	then func(*driver.TurnList)
}

func (d listing) List(ctx context.Context, namespace, id string, options driver.ListOptions) (*driver.TurnList, error) {
	list, err := d.Lister.List(ctx, namespace, id, options)
	if err == nil {
		d.then(list)
	}
	return list, err
}

// newListing returns a conversation with the turns resp_1 and resp_2, through a driver whose lists are followed by a function, and through
// another process.
func newListing(t *testing.T, then func(*driver.TurnList)) (through, other *store.Conversations) {
	t.Helper()
	d, options, err := driver.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	options.Namespace = "default"
	other = store.New(d, options).Conversations()
	through = store.New(listing{d, d.(driver.Conversations), d.(driver.Lister), then}, options).Conversations()
	if _, err := other.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"resp_1", "resp_2"} {
		if _, err := other.Append(t.Context(), "conv_1", testturn.Make(id, ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return through, other
}

// TestRollbackWithOlderOperator: if an operator does not say with which turn a history ends, what needs that fails, and does not search for ever.
func TestRollbackWithOlderOperator(t *testing.T) {
	c, _ := newListing(t, func(list *driver.TurnList) { list.Head = "" })
	if _, err := c.Rollback(t.Context(), "conv_1", "resp_1"); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}

// TestRollbackRaces: a turn that was rolled back just after it was found does not become the last one again.
func TestRollbackRaces(t *testing.T) {
	var other *store.Conversations
	once := sync.OnceFunc(func() {
		if _, err := other.Rollback(t.Context(), "conv_1", ""); err != nil {
			t.Error(err)
		}
		if _, err := other.Append(t.Context(), "conv_1", testturn.Make("resp_3", ""), store.AppendOptions{}); err != nil {
			t.Error(err)
		}
	})
	var c *store.Conversations
	c, other = newListing(t, func(*driver.TurnList) { once() })
	if _, err := c.Rollback(t.Context(), "conv_1", "resp_1"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if got, err := other.Get(t.Context(), "conv_1"); err != nil || got.Head.ResponseID != "resp_3" {
		t.Errorf("the head is %+v, %v", got.Head, err)
	}
}
