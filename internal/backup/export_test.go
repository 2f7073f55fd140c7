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
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/internal/snapshot"
)

// TestExpiredList: a list that expires begins again, and the export has each session once.
func TestExpiredList(t *testing.T) {
	for name, tc := range map[string]struct {
		expirations int32
		want        string
	}{"once": {1, ""}, "always": {maxLists, "took longer than the API server keeps its version"}} {
		t.Run(name, func(t *testing.T) {
			api, config := newFake()
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
	api, config := newFake()
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
	api, config := newFake()
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
	if err != nil || !imported.Complete() || imported.Sessions.Created != 4 || imported.WithoutBodies != 3 || imported.Sessions.Broken != 4 {
		t.Errorf("got %+v, %v", imported, err)
	}
}

// TestExportNeedsItsBucket: a session in a bucket is no session without bodies because nobody has named the bucket.
func TestExportNeedsItsBucket(t *testing.T) {
	api, config := newFake()
	s := newTurn("a", "")
	s.Spec = []byte(`{"responseID":"a","snapshot":{"store":"Blob","key":"aaaaaaaaaaaaaaaaaaaaaaaaaa","parts":1,"sizeBytes":50,"storedBytes":50,"sha256":""}}`)
	api.put("from", s)
	if _, err := openFake(t, config).Export(t.Context(), "from", io.Discard); err == nil || !strings.Contains(err.Error(), "--snapshot-store") {
		t.Errorf("got %v", err)
	}
}

// TestSilentServer: an export ends with an error if the API server accepts requests and sends nothing.
func TestSilentServer(t *testing.T) {
	api, config := newFake()
	api.before = func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	c, err := Open(t.Context(), Options{
		Config: config, MaxTurnBytes: DefaultMaxTurnBytes, Concurrency: 1, APITimeout: time.Millisecond, Problem: func(string, string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Export(t.Context(), "from", io.Discard); !errors.Is(err, silence.ErrSilent) {
		t.Errorf("got %v, want %v", err, silence.ErrSilent)
	}
}
