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

package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/snapshot"
)

// newTurn returns the session of a turn.
func newTurn(id, previous string) *Object {
	spec := map[string]any{"responseID": id, "responseStatus": "completed", "request": map[string]any{"input": "question of " + id}}
	if previous != "" {
		spec["previousResponseID"] = previous
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return &Object{Name: v1alpha1.ObjectName(id), Spec: text}
}

// withSnapshot stores bodies in chunks of a namespace, and adds the reference to the spec of a session.
func withSnapshot(ctx context.Context, c *Cluster, namespace string, s *Object, bodies snapshot.Bodies) error {
	ref, err := snapshot.Write(ctx, c.stores[0], types.NamespacedName{Namespace: namespace, Name: s.Name}, bodies)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(s.Spec, &spec); err != nil {
		return err
	}
	spec["snapshot"] = ref
	delete(spec, "request")
	s.Spec, err = json.Marshal(spec)
	return err
}

func export(ctx context.Context, t tester, c *Cluster, namespace string) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := c.Export(ctx, namespace, &out); err != nil {
		t.Fatalf("export: %v", err)
	}
	return out.String()
}

// pipe hides that a reader can seek.
type pipe struct{ io.Reader }

func mustRead(t tester, file string) []*Object {
	t.Helper()
	sessions, err := readFile(strings.NewReader(file), DefaultMaxTurnBytes)
	if err != nil {
		t.Fatalf("unable to read the export: %v", err)
	}
	return sessions
}

// TestRoundTrip: whatever a namespace contains, an import into an empty one makes its objects and histories equal.
func TestRoundTrip(t *testing.T) {
	api, config := newFake()
	c := openFake(t, config)
	rapid.Check(t, func(rt *rapid.T) {
		const from, to = "from", "to"
		clear(api.objects)
		names := []string{"a", "b", "resp_c", "RESP-D", "ä", "f", "g", "h"}
		parents := map[string]string{}
		for _, id := range names {
			previous := rapid.SampledFrom(append([]string{"", "", "gone"}, names...)).Draw(rt, "parent of "+id)
			if previous == id || rapid.IntRange(0, 5).Draw(rt, id+" is absent") == 0 {
				continue
			}
			s := newTurn(id, previous)
			if rapid.IntRange(0, 3).Draw(rt, "opt-out of "+id) == 0 {
				s.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
			}
			if rapid.Bool().Draw(rt, id+" is large") {
				bodies := snapshot.Bodies{Request: rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(rt, "request of "+id), Metadata: []byte("{}\n")}
				if err := withSnapshot(t.Context(), c, from, s, bodies); err != nil {
					rt.Fatalf("unable to write a snapshot: %v", err)
				}
			}
			api.put(from, s)
			parents[id] = previous
		}
		count, want := len(parents), verifiable(parents)
		conversations, summaries := drawConversations(rt, api, from, append([]string{"", "gone"}, names...))
		file := export(t.Context(), rt, c, from)
		in := io.Reader(strings.NewReader(file))
		if rapid.Bool().Draw(rt, "from a pipe") {
			in = pipe{in}
		}
		imported, err := c.Import(t.Context(), in, ImportOptions{Namespace: to})
		if err != nil || !imported.Complete() || imported.Sessions.Created != count || imported.Sessions.Verified != want || imported.Sessions.Broken != count-want {
			rt.Fatalf("got %+v, %v, want %d created and %d verified", imported, err, count, want)
		}
		if imported.Conversations.Created != conversations || imported.Summaries.Created != summaries {
			rt.Fatalf("got %+v, want %d conversations and %d summaries", imported, conversations, summaries)
		}
		before, after := mustRead(rt, file), mustRead(rt, export(t.Context(), rt, c, to))
		sameButSpec := cmp.Options{sameObject, cmpopts.IgnoreFields(Object{}, "Spec")} // which has the key of the snapshot
		if diff := cmp.Diff(before, after, sameButSpec); diff != "" {
			rt.Fatalf("(-before +after):\n%s", diff)
		}
		wantOwners(rt, api, to, after)
	})
}

// verifiable returns the number of turns whose chains lead to a root.
func verifiable(parents map[string]string) int {
	count := 0
	for id := range parents {
		previous, found := parents[id]
		for range parents { // longer chains have a cycle
			if found && previous != "" {
				previous, found = parents[previous]
			}
		}
		if found && previous == "" {
			count++
		}
	}
	return count
}

// drawConversations stores conversations that end at some of the heads, with summaries, and returns the numbers of both that an export has.
func drawConversations(t *rapid.T, api *fakeAPI, namespace string, heads []string) (conversations, summaries int) {
	for _, id := range []string{"conv_1", "CONV-2", "conv_3"} {
		spec := v1alpha1.ConversationSpec{HeadResponseID: rapid.SampledFrom(heads).Draw(t, "head of "+id)}
		if spec.HeadResponseID != "" && rapid.Bool().Draw(t, id+" is reserved") {
			spec.BaseResponseID = rapid.SampledFrom(heads).Draw(t, "base of "+id)
			spec.Reservation = &v1alpha1.Reservation{DurationSeconds: 10}
		}
		if rapid.IntRange(0, 3).Draw(t, id+" is Deleting") == 0 {
			spec.State = v1alpha1.ConversationStateDeleting
		}
		putConversation(t, api, namespace, conversationOf(id, spec))
		if spec.State == "" {
			conversations++
			summaries++
		}
	}
	return conversations, summaries
}

// wantOwners checks that sessions and summaries have the UID of their parents, unless they must not.
func wantOwners(t tester, api *fakeAPI, namespace string, objects []*Object) {
	t.Helper()
	for _, o := range objects {
		var want []types.UID
		if o.parent >= 0 && o.kind != conversationKind && !o.omitsOwner() {
			want = []types.UID{api.metadata(t, o.kind.parentKind(), namespace, objects[o.parent].Name).UID}
		}
		var got []types.UID
		for _, owner := range api.metadata(t, o.kind, namespace, o.Name).OwnerReferences {
			got = append(got, owner.UID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("owners of %s (-want +got):\n%s", o.label(), diff)
		}
	}
}

// TestDeepChain: the length of a chain has no limit.
func TestDeepChain(t *testing.T) {
	const depth = 10_000
	api, config := newFake()
	c, previous := openFake(t, config), ""
	for i := range depth {
		id := fmt.Sprintf("%x", depth-i) // the deepest is not the last by name
		api.put("from", newTurn(id, previous))
		previous = id
	}
	imported, err := c.Import(t.Context(), strings.NewReader(export(t.Context(), t, c, "from")), ImportOptions{Namespace: "to"})
	if err != nil || imported.Sessions.Created != depth || imported.Sessions.Verified != depth {
		t.Fatalf("got %+v, %v", imported, err)
	}
}
