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
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// family is a namespace with a turn, its child and its grandchild, and another root.
func family(t *testing.T) (*fakeAPI, *Cluster, string) {
	t.Helper()
	return familyWith(t)
}

// familyWith is a family with conversations, which have summaries.
func familyWith(t *testing.T, conversations ...*Object) (*fakeAPI, *Cluster, string) {
	t.Helper()
	api, config := newFake()
	c := openFake(t, config)
	large := newTurn("b", "a")
	if err := withSnapshot(t.Context(), c, "from", large, snapshot.Bodies{Request: []byte(`{"input":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Object{newTurn("a", ""), large, newTurn("c", "b"), newTurn("d", "")} {
		api.put("from", s)
	}
	for _, c := range conversations {
		putConversation(t, api, "from", c)
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
	if err != nil || !imported.Complete() || imported.Sessions.Equal != 4 || imported.Sessions.Verified != 4 {
		t.Errorf("got %+v, %v", imported, err)
	}
	if got := api.count("snapshotchunks"); got != chunks {
		t.Errorf("got %d chunks, want %d", got, chunks)
	}
}

// TestDifferentSessions: an existing session is never overwritten, and nothing continues it.
func TestDifferentSessions(t *testing.T) {
	tests := map[string]struct {
		existing  *Object
		want      Imported
		wantNames []string
	}{
		"another spec":     {newTurn("a", "d"), Imported{Sessions: Counts{Created: 1, Different: 1, LeftOut: 2, Verified: 1}}, []string{"a", "b", "c"}},
		"more labels":      {labelled("a", "x", "y"), Imported{Sessions: Counts{Created: 3, Equal: 1, Verified: 4}}, nil},
		"another last one": {newTurn("c", "d"), Imported{Sessions: Counts{Created: 3, Different: 1, Verified: 3}}, []string{"c"}},
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

func labelled(id, key, value string) *Object {
	s := newTurn(id, "")
	s.Labels = map[string]string{key: value}
	return s
}

// TestDifferentLabels: a session without the labels of the file is different.
func TestDifferentLabels(t *testing.T) {
	api, config := newFake()
	c := openFake(t, config)
	api.put("from", labelled("a", "team", "a"))
	file := export(t.Context(), t, c, "from")
	api.put("to", labelled("a", "team", "b"))
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to"})
	if err != nil || imported.Sessions.Different != 1 || imported.Complete() {
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
	if err != nil || imported.Sessions.Created != 2 || imported.Sessions.Refused != 1 || imported.Sessions.LeftOut != 1 || imported.Complete() {
		t.Errorf("got %+v, %v", imported, err)
	}
	if diff := cmp.Diff("refused: spec.request is invalid (FieldValueInvalid)", found["b"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := api.count("snapshotchunks"); got != 0 {
		t.Errorf("%d chunks are left", got)
	}
}

// TestCreatedMeanwhile: if a session appears while it is imported, its snapshot stays, and the one that the import has written does not.
func TestCreatedMeanwhile(t *testing.T) {
	api, c, file := family(t)
	large := mustRead(t, file)[2]
	api.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responsesessions") && api.count(kubeclient.Chunks) > 0 &&
			api.session(t, "from", "b") == nil {
			api.put("from", large)
		}
		return false
	}
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
	if err != nil || imported.Sessions.Created != 3 || imported.Sessions.Equal != 1 || imported.Sessions.Verified != 4 {
		t.Errorf("got %+v, %v", imported, err)
	}
	if got := api.objects["snapshotchunks/from/"+v1alpha1.SnapshotChunkName(large.parsed.ref.Key, 0)]; got == nil || api.count(kubeclient.Chunks) != 1 {
		t.Errorf("got %d chunks, want that of the existing session", api.count(kubeclient.Chunks))
	}
}

// TestEmptyDryRun: a dry run does not even store chunks.
func TestEmptyDryRun(t *testing.T) {
	api, c, file := family(t)
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{DryRun: true})
	if err != nil || imported.Sessions.Created != 4 || len(api.objects) != 0 {
		t.Errorf("got %+v, %v, and %d objects", imported, err, len(api.objects))
	}
}

// TestWrongName: a session whose name belongs to another response ID is restored, but is nobody's parent.
func TestWrongName(t *testing.T) {
	api, config := newFake()
	c := openFake(t, config)
	wrong := newTurn("RESP-Q", "")
	wrong.Name = v1alpha1.ObjectName("RESP-P")
	api.put("from", wrong)
	api.put("from", newTurn("child", "RESP-P"))
	file := export(t.Context(), t, c, "from")
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to"})
	if err != nil || imported.Sessions.Created != 2 || imported.Sessions.Broken != 2 || !imported.Complete() {
		t.Errorf("got %+v, %v", imported, err)
	}
	if owners := api.session(t, "to", "child").OwnerReferences; len(owners) > 0 {
		t.Errorf("the child has the owners %v", owners)
	}
}

// TestDryRun: a dry run finds what an import would do, and stores nothing.
func TestDryRun(t *testing.T) {
	api, c, file := family(t)
	api.put("from", newTurn("a", "d"))
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{DryRun: true})
	if err != nil || imported.Sessions.Created != 1 || imported.Sessions.Different != 1 || imported.Sessions.LeftOut != 2 || imported.Sessions.Verified+imported.Sessions.Wrong != 0 {
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
		"being deleted": func(api *fakeAPI) {
			api.objects["responsesessions/from/b"]["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		},
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
			if err != nil || imported.Sessions.Created != 4 || imported.Sessions.Verified != 2 || imported.Sessions.Wrong != 2 || imported.Complete() {
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
