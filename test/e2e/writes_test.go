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

package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// writes are all writes of ResponseSessions and Conversations, as seen by etcd: a watch of the kube-apiserver would miss some while it
// restarts.
type writes struct {
	namespaces []string

	mu   sync.Mutex
	last map[string]written // by key: resource, namespace and name
	// statuses counts the writes of each object's verdict, by key.
	statuses  map[string]int
	redundant []string
	// unresolved are the writes after which a turn that was Resolved no longer is, or a conversation that only grows.
	unresolved []string
	revision   int64
	lastError  error
}

// written is the part of an object whose change justifies a write: the verdict without its times, and all other data except
// managedFields. reason is that of the verdict.
type written struct{ verdict, rest, reason string }

// inEtcd is the prefix of the keys of Catena's objects.
const inEtcd = "/registry/sessions.catena.dev/"

// The resources whose writes are recorded.
const (
	sessionKeys      = "responsesessions/"
	conversationKeys = "conversations/"
)

// recordWrites records all writes of the sessions and conversations of some namespaces until the end of the test.
func recordWrites(t *testing.T, namespaces ...string) *writes {
	t.Helper()
	w := &writes{namespaces: namespaces, last: map[string]written{}, statuses: map[string]int{}}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{etcdURL(t)}, Context: t.Context(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() }) // fails if the context of the test is done
	answer, err := etcd.Get(t.Context(), inEtcd, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	w.revision = answer.Header.Revision
	changes := etcd.Watch(t.Context(), inEtcd, clientv3.WithPrefix(), clientv3.WithRev(w.revision+1))
	go func() {
		for change := range changes {
			w.add(change)
		}
	}()
	return w
}

// etcdURL returns the URL at which etcd serves clients.
func etcdURL(t *testing.T) string {
	t.Helper()
	for _, arg := range etcdProcess(t).args {
		if url, found := strings.CutPrefix(arg, "--advertise-client-urls="); found {
			return url
		}
	}
	t.Fatal("etcd has no --advertise-client-urls")
	return ""
}

func (w *writes) add(change clientv3.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := change.Err(); err != nil {
		w.lastError = err
		return
	}
	for _, event := range change.Events {
		key := strings.TrimPrefix(string(event.Kv.Key), inEtcd)
		w.revision = event.Kv.ModRevision
		if !w.watches(key) {
			continue
		}
		if event.Type == clientv3.EventTypeDelete {
			delete(w.last, key)
			continue
		}
		w.record(key, event.Kv.Version, event.Kv.ModRevision, event.Kv.Value)
	}
}

// record records that an object was written for the version-th time.
func (w *writes) record(key string, version, revision int64, object []byte) {
	next, before := newWritten(object), w.last[key]
	description := fmt.Sprintf("%s at revision %d: %.2000s", key, revision, object)
	if version > 1 && next.verdict == before.verdict && next.rest == before.rest {
		w.redundant = append(w.redundant, description)
	}
	if next.reason == v1alpha1.ReasonHeadReserved {
		next.reason = before.reason // while the next turn is saved
	}
	if before.reason == v1alpha1.ReasonResolved && next.reason != v1alpha1.ReasonResolved {
		w.unresolved = append(w.unresolved, description)
	}
	if next.verdict != before.verdict {
		w.statuses[key]++
	}
	w.last[key] = next
}

func (w *writes) watches(key string) bool {
	for _, namespace := range w.namespaces {
		if strings.HasPrefix(key, sessionKeys+namespace+"/") || strings.HasPrefix(key, conversationKeys+namespace+"/") {
			return true
		}
	}
	return false
}

// newWritten reads a stored object.
func newWritten(object []byte) written {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return written{rest: err.Error()}
	}
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(fields["metadata"], &metadata); err != nil {
		return written{rest: err.Error()}
	}
	delete(metadata, "managedFields")
	status := fields["status"]
	verdict, err := json.Marshal(withoutTimes(status))
	if err != nil {
		return written{rest: err.Error()}
	}
	metadataJSON, err := json.Marshal(metadata) // sorts the keys
	if err != nil {
		return written{rest: err.Error()}
	}
	return written{
		verdict: string(verdict),
		rest:    string(metadataJSON) + string(fields["spec"]),
		reason: cmp.Or(gjson.GetBytes(status, `conditions.#(type=="ChainValid").reason`).Str,
			gjson.GetBytes(status, `conditions.#(type=="HeadResolved").reason`).Str),
	}
}

// withoutTimes returns a status without the times of its conditions.
func withoutTimes(status []byte) map[string]any {
	var fields map[string]any
	if json.Unmarshal(status, &fields) != nil {
		return nil // the object has no status
	}
	conditions, _ := fields["conditions"].([]any)
	for _, condition := range conditions {
		if condition, ok := condition.(map[string]any); ok {
			delete(condition, "lastTransitionTime")
		}
	}
	return fields
}

// check reports statuses that were rewritten although only their times changed, and verdicts that were wrong: in a test that
// neither deletes nor overwrites a turn, one that was Resolved stays so.
func (w *writes) check(t *testing.T) {
	t.Helper()
	stored := storedVersions(t)
	testutil.Eventually(t, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lastError != nil {
			t.Fatal(w.lastError)
		}
		missing := 0
		for key := range stored {
			if _, found := w.last[key]; w.watches(key) && !found {
				missing++
			}
		}
		return unless(missing == 0, fmt.Sprintf("%d objects not seen in etcd", missing))
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, keys := range []string{sessionKeys, conversationKeys} {
		objects, total, most := 0, 0, 0
		for key, n := range w.statuses {
			if strings.HasPrefix(key, keys) {
				objects++
				total += n
				most = max(most, n)
			}
		}
		t.Logf("%d %s with %d verdicts written, at most %d on one", objects, strings.TrimSuffix(keys, "/"), total, most)
	}
	if len(w.redundant) > 0 {
		t.Errorf("%d statuses were written without a change: %s", len(w.redundant), w.redundant[0])
	}
	if len(w.unresolved) > 0 {
		t.Errorf("%d verdicts were wrong for some time, because the turn was Resolved before: %s", len(w.unresolved), w.unresolved[0])
	}
}

// storedVersions returns the resource versions of all sessions and conversations, by key.
func storedVersions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for key, version := range testsession.ResourceVersions(t, env.Client, "") {
		versions[sessionKeys+key] = version
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ConversationKind + "List"))
	if err := env.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, object := range list.Items {
		versions[conversationKeys+object.Namespace+"/"+object.Name] = object.ResourceVersion
	}
	return versions
}

// TestWrites: a verdict that is correct again has been wrong.
func TestWrites(t *testing.T) {
	tests := map[string]struct {
		reasons                   []string
		wantRedundant, wantBroken int
	}{
		"healed":         {[]string{v1alpha1.ReasonParentNotFound, v1alpha1.ReasonResolved}, 0, 0},
		"twice":          {[]string{v1alpha1.ReasonResolved, v1alpha1.ReasonResolved}, 1, 0},
		"flapped":        {[]string{v1alpha1.ReasonResolved, v1alpha1.ReasonParentNotFound, v1alpha1.ReasonResolved}, 0, 1},
		"reserved":       {[]string{v1alpha1.ReasonResolved, v1alpha1.ReasonHeadReserved, v1alpha1.ReasonParentNotFound}, 0, 1},
		"reserved twice": {[]string{v1alpha1.ReasonResolved, v1alpha1.ReasonHeadReserved, v1alpha1.ReasonHeadReserved}, 1, 0},
		"grown":          {[]string{v1alpha1.ReasonResolved, v1alpha1.ReasonHeadReserved, v1alpha1.ReasonResolved}, 0, 0},
		"removed":        {[]string{v1alpha1.ReasonResolved, ""}, 0, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &writes{last: map[string]written{}, statuses: map[string]int{}}
			for i, reason := range tc.reasons {
				object := fmt.Appendf(nil, `{"metadata":{},"status":{"conditions":[{"type":"ChainValid","reason":%q}]}}`, reason)
				w.record(sessionKeys+"ns/resp.1", int64(i+1), int64(i+1), object)
			}
			if len(w.redundant) != tc.wantRedundant || len(w.unresolved) != tc.wantBroken {
				t.Errorf("got %d redundant and %d wrong verdicts, want %d and %d", len(w.redundant), len(w.unresolved), tc.wantRedundant, tc.wantBroken)
			}
		})
	}
}
