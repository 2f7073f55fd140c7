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
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// newTurn returns the session of a turn.
func newTurn(id, previous string) *Session {
	spec := map[string]any{"responseID": id, "responseStatus": "completed", "request": map[string]any{"input": "question of " + id}}
	if previous != "" {
		spec["previousResponseID"] = previous
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return &Session{Name: v1alpha1.ObjectName(id), Spec: text}
}

// withSnapshot stores bodies in chunks of a namespace, and adds the reference to the spec of a session.
func withSnapshot(ctx context.Context, c *Cluster, namespace string, s *Session, bodies snapshot.Bodies) error {
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

func mustRead(t tester, file string) []*Session {
	t.Helper()
	sessions, err := readFile(strings.NewReader(file), DefaultMaxTurnBytes)
	if err != nil {
		t.Fatalf("unable to read the export: %v", err)
	}
	return sessions
}

// TestRoundTrip: whatever a namespace contains, an import into an empty one makes its sessions and chains equal.
func TestRoundTrip(t *testing.T) {
	api, config := startFake(t)
	c := openFake(t, config)
	spaces := 0
	rapid.Check(t, func(rt *rapid.T) {
		spaces++
		from, to := fmt.Sprint("from-", spaces), fmt.Sprint("to-", spaces)
		names := []string{"a", "b", "resp_c", "RESP-D", "ä", "f", "g", "h"}
		count := 0
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
			count++
		}
		file := export(t.Context(), rt, c, from)
		in := io.Reader(strings.NewReader(file))
		if rapid.Bool().Draw(rt, "from a pipe") {
			in = pipe{in}
		}
		imported, err := c.Import(t.Context(), in, ImportOptions{Namespace: to})
		if err != nil || !imported.Complete() || imported.Created != count || imported.Verified != count {
			rt.Fatalf("got %+v, %v, want %d created and verified", imported, err, count)
		}
		before, after := mustRead(rt, file), mustRead(rt, export(t.Context(), rt, c, to))
		sameButSpec := cmp.Options{sameSession, cmpopts.IgnoreFields(Session{}, "Spec")} // which has the key of the snapshot
		if diff := cmp.Diff(before, after, sameButSpec); diff != "" {
			rt.Fatalf("(-before +after):\n%s", diff)
		}
		wantOwners(rt, api, to, after)
	})
}

// wantOwners checks that sessions have the UID of their parents, unless they must not.
func wantOwners(t tester, api *fakeAPI, namespace string, sessions []*Session) {
	t.Helper()
	for _, s := range sessions {
		var want []types.UID
		if s.parent >= 0 && !s.omitsOwner() {
			want = []types.UID{api.session(t, namespace, sessions[s.parent].Name).UID}
		}
		var got []types.UID
		for _, owner := range api.session(t, namespace, s.Name).OwnerReferences {
			got = append(got, owner.UID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("owners of %s (-want +got):\n%s", s.Name, diff)
		}
	}
}

// TestDeepChain: the length of a chain has no limit.
func TestDeepChain(t *testing.T) {
	const depth = 10_000
	api, config := startFake(t)
	c, previous := openFake(t, config), ""
	for i := range depth {
		id := fmt.Sprintf("%x", depth-i) // the deepest is not the last by name
		api.put("from", newTurn(id, previous))
		previous = id
	}
	imported, err := c.Import(t.Context(), strings.NewReader(export(t.Context(), t, c, "from")), ImportOptions{Namespace: "to"})
	if err != nil || imported.Created != depth || imported.Verified != depth {
		t.Fatalf("got %+v, %v", imported, err)
	}
}

// TestExpiredList: a list that expires begins again, and the export has each session once.
func TestExpiredList(t *testing.T) {
	for name, tc := range map[string]struct {
		expirations int32
		want        string
	}{"once": {1, ""}, "always": {maxLists, "took longer than the API server keeps its version"}} {
		t.Run(name, func(t *testing.T) {
			api, config := startFake(t)
			c := openFake(t, config)
			for i := range pageSize + 1 {
				api.put("from", newTurn(fmt.Sprintf("%03d", i), ""))
			}
			var expired atomic.Int32
			api.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("continue") == "" || expired.Add(1) > tc.expirations {
					return false
				}
				refuse(w, apierrors.NewResourceExpired("too old"))
				return true
			}
			var out bytes.Buffer
			exported, err := c.Export(t.Context(), "from", &out)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil || exported.Sessions != pageSize+1 || len(mustRead(t, out.String())) != pageSize+1 {
				t.Errorf("got %+v, %v", exported, err)
			}
		})
	}
}

// TestExportLeavesOut: a session that is being deleted is not in the file, and its child is an orphan.
func TestExportLeavesOut(t *testing.T) {
	api, config := startFake(t)
	api.put("from", newTurn("a", ""))
	api.put("from", newTurn("b", "a"))
	api.objects["responsesessions/from/a"]["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	sessions := mustRead(t, export(t.Context(), t, openFake(t, config), "from"))
	if len(sessions) != 1 || sessions[0].Name != "b" || sessions[0].parent != -1 {
		t.Errorf("got %+v", sessions)
	}
}

// problems collects what a cluster reports, by session.
func problems(c *Cluster) map[string]string {
	found, mu := map[string]string{}, make(chan struct{}, 1)
	c.Problem = func(session, problem string) {
		mu <- struct{}{}
		found[session] = problem
		<-mu
	}
	return found
}

// TestUnreadableSnapshots: sessions without readable snapshots are exported and reported, and restored as they were.
func TestUnreadableSnapshots(t *testing.T) {
	api, config := startFake(t)
	c := openFake(t, config)
	for _, id := range []string{"a", "changed", "large"} {
		s := newTurn(id, "")
		if err := withSnapshot(t.Context(), c, "from", s, snapshot.Bodies{Request: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if id == "large" {
			s.Spec = bytes.Replace(s.Spec, []byte(`"sizeBytes":`), []byte(`"sizeBytes":1e30,"x":`), 1)
		}
		api.put("from", s)
	}
	api.put("from", newTurn("b", "a"))
	for key := range api.objects {
		if strings.HasPrefix(key, "snapshotchunks/") {
			delete(api.objects, key)
		}
	}
	reads := 0
	api.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/snapshotchunks/") {
			reads++
			api.put("from", newTurn("changed", "")) // while it is exported
		}
		return false
	}
	found := problems(c)
	var out bytes.Buffer
	exported, err := c.Export(t.Context(), "from", &out)
	if err != nil || exported.Sessions != 4 || exported.Snapshots != 3 || exported.Unreadable != 3 || reads == 0 {
		t.Fatalf("got %+v, %v", exported, err)
	}
	for session, want := range map[string]string{"a": "snapshot is unreadable", "changed": "was overwritten", "large": "not configured"} {
		if !strings.Contains(found[session], want) {
			t.Errorf("%s: got %q, want %q", session, found[session], want)
		}
	}
	imported, err := c.Import(t.Context(), &out, ImportOptions{Namespace: "to"})
	if err != nil || !imported.Complete() || imported.Created != 4 || imported.WithoutBodies != 3 || imported.Verified != 4 {
		t.Errorf("got %+v, %v", imported, err)
	}
}

// TestExportNeedsItsBucket: a session in a bucket is no session without bodies because nobody has named the bucket.
func TestExportNeedsItsBucket(t *testing.T) {
	api, config := startFake(t)
	s := newTurn("a", "")
	s.Spec = []byte(`{"responseID":"a","snapshot":{"store":"Blob","key":"aaaaaaaaaaaaaaaaaaaaaaaaaa","parts":1,"sizeBytes":50,"storedBytes":50,"sha256":""}}`)
	api.put("from", s)
	if _, err := openFake(t, config).Export(t.Context(), "from", io.Discard); err == nil || !strings.Contains(err.Error(), "--snapshot-store") {
		t.Errorf("got %v", err)
	}
}

// family is a namespace with a turn, its child and its grandchild, and another root.
func family(t *testing.T) (*fakeAPI, *Cluster, string) {
	t.Helper()
	api, config := startFake(t)
	c := openFake(t, config)
	large := newTurn("b", "a")
	if err := withSnapshot(t.Context(), c, "from", large, snapshot.Bodies{Request: []byte(`{"input":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Session{newTurn("a", ""), large, newTurn("c", "b"), newTurn("d", "")} {
		api.put("from", s)
	}
	file := export(t.Context(), t, c, "from")
	clear(api.objects)
	return api, c, file
}

// TestImportTwice: the second import skips everything, and writes missing parts of snapshots again.
func TestImportTwice(t *testing.T) {
	api, c, file := family(t)
	if _, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	chunks := api.count("snapshotchunks")
	for key := range api.objects {
		if strings.HasPrefix(key, "snapshotchunks/") {
			delete(api.objects, key)
		}
	}
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
	if err != nil || !imported.Complete() || imported.Equal != 4 || imported.Verified != 4 {
		t.Errorf("got %+v, %v", imported, err)
	}
	if got := api.count("snapshotchunks"); got != chunks {
		t.Errorf("got %d chunks, want %d", got, chunks)
	}
}

// TestDifferentSessions: an existing session is never overwritten, and nothing continues it.
func TestDifferentSessions(t *testing.T) {
	tests := map[string]struct {
		existing  *Session
		want      Imported
		wantNames []string
	}{
		"another spec":     {newTurn("a", "d"), Imported{Created: 1, Different: 1, LeftOut: 2, Verified: 1}, []string{"a", "b", "c"}},
		"more labels":      {labelled("a", "x", "y"), Imported{Created: 3, Equal: 1, Verified: 4}, nil},
		"another last one": {newTurn("c", "d"), Imported{Created: 3, Different: 1, Verified: 3}, []string{"c"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api, c, file := family(t)
			api.put("from", tc.existing)
			uid := api.session(t, "from", tc.existing.Name).UID
			found := problems(c)
			imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Header, tc.want.Namespace = imported.Header, "from"
			if diff := cmp.Diff(&tc.want, imported); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(found) != len(tc.wantNames) {
				t.Errorf("problems: got %v, want those of %v", found, tc.wantNames)
			}
			if got := api.session(t, "from", tc.existing.Name).UID; got != uid {
				t.Error("the existing session was replaced")
			}
		})
	}
}

func labelled(id, key, value string) *Session {
	s := newTurn(id, "")
	s.Labels = map[string]string{key: value}
	return s
}

// TestDifferentLabels: a session without the labels of the file is different.
func TestDifferentLabels(t *testing.T) {
	api, config := startFake(t)
	c := openFake(t, config)
	api.put("from", labelled("a", "team", "a"))
	file := export(t.Context(), t, c, "from")
	api.put("to", labelled("a", "team", "b"))
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to"})
	if err != nil || imported.Different != 1 || imported.Complete() {
		t.Errorf("got %+v, %v", imported, err)
	}
}

// TestRefusedSessions: what the API server refuses is reported without text of the session, its snapshot is removed, and the rest is
// imported.
func TestRefusedSessions(t *testing.T) {
	api, c, file := family(t)
	api.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responsesessions") {
			return false
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		r.Body = io.NopCloser(&body)
		if !strings.Contains(body.String(), `"name":"b"`) {
			return false
		}
		invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ResponseSession"}, "b", nil)
		invalid.ErrStatus.Message = "SECRET"
		invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.request", Message: "SECRET"}}
		refuse(w, invalid)
		return true
	}
	found := problems(c)
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
	if err != nil || imported.Created != 2 || imported.Refused != 1 || imported.LeftOut != 1 || imported.Complete() {
		t.Errorf("got %+v, %v", imported, err)
	}
	if diff := cmp.Diff("refused: spec.request is invalid (FieldValueInvalid)", found["b"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := api.count("snapshotchunks"); got != 0 {
		t.Errorf("%d chunks are left", got)
	}
}

// TestInterruptedImport: an import that ends at any write continues when it is repeated.
func TestInterruptedImport(t *testing.T) {
	for stop := int32(1); ; stop++ {
		api, c, file := family(t)
		ctx, cancel := context.WithCancel(t.Context())
		var writes atomic.Int32
		api.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && writes.Add(1) == stop {
				cancel()
			}
			return false
		}
		_, err := c.Import(ctx, strings.NewReader(file), ImportOptions{})
		cancel()
		if err == nil {
			break // there were fewer writes
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("write %d: got %v", stop, err)
		}
		imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
		if err != nil || !imported.Complete() || imported.Verified != 4 {
			t.Errorf("write %d: got %+v, %v", stop, imported, err)
		}
		wantOwners(t, api, "from", mustRead(t, export(t.Context(), t, c, "from")))
	}
}

// TestDamagedFile: nothing of a damaged file is imported. From a pipe, nothing after the damage is.
func TestDamagedFile(t *testing.T) {
	for name, in := range map[string]func(io.Reader) io.Reader{
		"file": func(r io.Reader) io.Reader { return r },
		"pipe": func(r io.Reader) io.Reader { return pipe{r} },
	} {
		t.Run(name, func(t *testing.T) {
			api, c, file := family(t)
			damaged := file[:len(file)-100]
			_, err := c.Import(t.Context(), in(strings.NewReader(damaged)), ImportOptions{})
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v, want ErrDamaged", err)
			}
			want := 0
			if name == "pipe" {
				want = 4
			}
			if got := api.count("responsesessions"); got != want {
				t.Errorf("got %d sessions, want %d", got, want)
			}
		})
	}
}

// TestDryRun: a dry run finds what an import would do, and stores nothing.
func TestDryRun(t *testing.T) {
	api, c, file := family(t)
	api.put("from", newTurn("a", "d"))
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{DryRun: true})
	if err != nil || imported.Created != 1 || imported.Different != 1 || imported.LeftOut != 2 || imported.Verified+imported.Wrong != 0 {
		t.Errorf("got %+v, %v", imported, err)
	}
	if sessions, chunks := api.count("responsesessions"), api.count("snapshotchunks"); sessions != 1 || chunks != 0 {
		t.Errorf("got %d sessions and %d chunks", sessions, chunks)
	}
}

// TestWrongInTheEnd: a session that is overwritten or deleted while an import is running is found by the verification, and so are the
// turns that continue it.
func TestWrongInTheEnd(t *testing.T) {
	for name, change := range map[string]func(api *fakeAPI){
		"overwritten": func(api *fakeAPI) {
			api.objects["responsesessions/from/b"]["spec"].(map[string]any)["responseStatus"] = "failed"
		},
		"deleted": func(api *fakeAPI) { delete(api.objects, "responsesessions/from/b") },
		"parts deleted": func(api *fakeAPI) {
			for key := range api.objects {
				if strings.HasPrefix(key, "snapshotchunks/") {
					delete(api.objects, key)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			api, c, file := family(t)
			var last atomic.Bool
			api.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if last.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/b") {
					api.mu.Lock()
					change(api)
					api.mu.Unlock()
				}
				return false
			}
			found := problems(c)
			c.Progress = func(phase string, _ int) (step, end func()) {
				last.Store(phase == "verify")
				return func() {}, func() {}
			}
			imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
			if err != nil || imported.Created != 4 || imported.Verified != 2 || imported.Wrong != 2 || imported.Complete() {
				t.Errorf("got %+v, %v", imported, err)
			}
			if len(found) != 1 || found["b"] == "" {
				t.Errorf("problems: got %v, want one of b", found)
			}
		})
	}
}

// TestForbiddenImport: without the rights, an import ends at once.
func TestForbiddenImport(t *testing.T) {
	api, c, file := family(t)
	api.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: kubeclient.Sessions}, "a", errors.New("no rights")))
			return true
		}
		return false
	}
	if _, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}
