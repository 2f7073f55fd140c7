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

package backup_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// largeTurn is a turn of 1.8 MB, more than etcd accepts, with a number and spaces that a custom resource does not preserve.
func largeTurn(id, previous string) *store.Session {
	image := make([]byte, 900_000)
	_, _ = rand.NewChaCha8([32]byte{byte(len(id))}).Read(image) // never fails
	turn := testturn.Make(id, previous)
	turn.Request = fmt.Appendf(nil, `{ "model":"m", "input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%x"}],"n":12345678901234567890}] }`, image)
	return turn
}

// broken is the number of turns of populate without a whole history: an orphan, and a cycle of three with a turn after it.
const broken = 5

// populate fills a namespace with turns of all kinds, waits for their verdicts, and returns their response IDs.
func populate(t *testing.T, namespace string) []string {
	t.Helper()
	inChunks, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	inBucket, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace, SnapshotStore: bucketURL()})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	save := func(s *store.Store, turn *store.Session, reason string) {
		t.Helper()
		if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		reasons[turn.ResponseID] = reason
	}
	object := func(b testsession.Builder, reason string, edit func(*v1alpha1.ResponseSession)) {
		t.Helper()
		edit(b.Obj())
		reasons[b.Create(t, env.Client).Spec.ResponseID] = reason
	}
	nothing := func(*v1alpha1.ResponseSession) {}

	previous := ""
	for i := range 20 {
		id := fmt.Sprintf("resp_%d", 99-i)
		save(inChunks, testturn.Make(id, previous), v1alpha1.ReasonResolved)
		previous = id
	}
	save(inChunks, testturn.Make("resp_fork", "resp_95"), v1alpha1.ReasonResolved)
	save(inChunks, largeTurn("resp_large", "resp_fork"), v1alpha1.ReasonResolved)
	save(inBucket, largeTurn("resp_bucket", "resp_large"), v1alpha1.ReasonResolved)
	save(inChunks, testturn.Make("resp_last", "resp_bucket"), v1alpha1.ReasonResolved)
	unicode := testturn.Make("Antwort/Ü😀", "resp_last")
	unicode.Request = []byte(`{"input":"<Grüße> \u2028\u0000 😀 \ud83d\ude00"}`)
	unicode.Immutable = true
	save(inChunks, unicode, v1alpha1.ReasonResolved)
	save(inChunks, testturn.Make("resp_orphan", "resp_gone"), v1alpha1.ReasonParentNotFound)
	running := testturn.Make("resp_running", "resp_95")
	running.Status = store.StatusInProgress
	save(inChunks, running, v1alpha1.ReasonTurnPending)
	save(inChunks, testturn.Make("resp_c1", "resp_c2"), v1alpha1.ReasonCycleDetected)
	save(inChunks, testturn.Make("resp_c2", "resp_c3"), v1alpha1.ReasonCycleDetected)
	object(testsession.Make(namespace, "resp_c3").After("resp_c1"), v1alpha1.ReasonCycleDetected, nothing)
	save(inChunks, testturn.Make("resp_after_cycle", "resp_c3"), v1alpha1.ReasonCycleDetected)
	object(testsession.Make(namespace, "resp_alone").After("resp_95"), v1alpha1.ReasonResolved, func(s *v1alpha1.ResponseSession) {
		s.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true", "note": "Notiz 😀"}
		s.Labels = map[string]string{"team": "a"}
	})
	object(testsession.Make(namespace, "resp_invalid").Request(`{"instructions":["a list"]}`), v1alpha1.ReasonSnapshotUnreadable, nothing)

	var ids []string
	for id, reason := range reasons {
		testsession.WaitForReason(t, env.Client, namespace, id, reason)
		ids = append(ids, id)
	}
	return ids
}

// resolveAll returns the histories of turns, or the codes of the errors, with the turns at which they occurred.
func resolveAll(t *testing.T, namespace string, ids []string) map[string]string {
	t.Helper()
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, id := range ids {
		history, err := s.Resolve(t.Context(), id, store.ResolveOptions{})
		if e, ok := errors.AsType[*store.Error](err); ok {
			results[id] = string(e.Code) + " " + e.ResponseID
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		results[id] = strings.Join(history.Turns, " ") + "\n" + string(bytes.Join(raws(history.Items), []byte("\n")))
	}
	return results
}

func raws(items []json.RawMessage) [][]byte {
	var all [][]byte
	for _, item := range items {
		all = append(all, item)
	}
	return all
}

// sameHistories compares whole texts: cmp.Diff of megabytes takes minutes.
func sameHistories(t *testing.T, when string, want, got map[string]string) {
	t.Helper()
	for id := range want {
		if want[id] != got[id] {
			t.Errorf("%s: %s resolves to %.200q, want %.200q", when, id, got[id], want[id])
		}
	}
}

// owners returns the names of the owners of all sessions, which must exist with the UIDs in the references. It leaves out those of the
// cycle: the operator adds some while the cycle is not complete.
func owners(t *testing.T, namespace string) map[string]string {
	t.Helper()
	all := testsession.Metadata(t, env.Client, namespace)
	uids := map[string]string{}
	for _, s := range all {
		uids[string(s.UID)] = s.Name
	}
	names := map[string]string{}
	for _, s := range all {
		for _, owner := range s.OwnerReferences {
			if uids[string(owner.UID)] != owner.Name {
				t.Errorf("%s has an owner that does not exist: %s", s.Name, owner.Name)
			}
			names[s.Name] += owner.Name
		}
	}
	for _, name := range []string{"resp.c1", "resp.c2", "resp.c3"} {
		delete(names, name)
	}
	return names
}

// specs returns the specs of all sessions without what depends on where snapshots are, and their labels and annotations.
func specs(t *testing.T, namespace string) map[string]any {
	t.Helper()
	list := &v1alpha1.ResponseSessionList{}
	if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, s := range list.Items {
		if ref := s.Spec.Snapshot; ref != nil {
			s.Spec.Snapshot = &v1alpha1.SnapshotReference{SizeBytes: ref.SizeBytes, SHA256: ref.SHA256}
		}
		all[s.Name] = []any{s.Spec, s.Labels, s.Annotations}
	}
	return all
}
