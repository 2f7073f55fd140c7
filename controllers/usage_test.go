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

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	promtestutil "github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestConversationsUseBytes: Conversations count towards the bytes of their namespace.
func TestConversationsUseBytes(t *testing.T) {
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	create(t, turn(ns, "a"))
	wantBytes := func(atLeast, atMost int64) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			usage := op.usage.Of(ns)
			if got := usage.Bytes.Value(); got < atLeast || got > atMost {
				return fmt.Errorf("counted %d bytes, want %d to %d", got, atLeast, atMost)
			}
			return nil
		})
	}
	wantBytes(1, 10_000)
	converse(t, ns, "conv_1", `{"systemPrompt":"`+strings.Repeat("x", 60_000)+`"}`)
	converse(t, ns, "conv_2", `{"systemPrompt":"`+strings.Repeat("x", 30_000)+`"}`)
	converse(t, other, "conv_1", `{"systemPrompt":"`+strings.Repeat("x", 60_000)+`"}`)
	wantBytes(90_000, 100_000)
	setHead(t, ns, "conv_1", `{"systemPrompt":null}`)
	wantBytes(30_000, 40_000)
	if err := env.Client.DeleteAllOf(t.Context(), &v1alpha1.Conversation{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	wantBytes(1, 10_000)
}

// TestUsageIsComplete: nothing is reported before the Conversations are counted, because a lower usage would lift a limit.
func TestUsageIsComplete(t *testing.T) {
	usage := *op.usage
	testutil.Eventually(t, func(context.Context) error {
		if !usage.HasSynced() {
			return errors.New("the usage has not been counted")
		}
		return nil
	})
	usage.Conversations = conversations.NewView(time.Hour, clock.RealClock{})
	if usage.HasSynced() {
		t.Error("the usage is complete without the Conversations")
	}
}

// TestUsageMetrics: the largest namespaces have metrics of their own, and the others have their sum.
func TestUsageMetrics(t *testing.T) {
	large, small := env.NewNamespace(t), env.NewNamespace(t)
	chunk := newChunk(large, "a", strings.Repeat("x", v1alpha1.MaxSnapshotChunkBytes), "")
	createAll(t, turn(large, "a"), turn(small, "a"), chunk)
	for i := range 100 { // so that no other test's namespace is larger
		inBucket := turn(large, fmt.Sprint("bucket", i))
		inBucket.Spec.Request, inBucket.Spec.Response = nil, nil
		inBucket.Spec.Snapshot = &v1alpha1.SnapshotReference{
			Store: v1alpha1.SnapshotStoreBlob, Key: strings.Repeat("a", 26), Parts: 1, SizeBytes: 1 << 40, StoredBytes: 1 << 40, SHA256: strings.Repeat("0", 64),
		}
		createAll(t, inBucket)
	}
	settle(t, large, small)
	testutil.Eventually(t, func(context.Context) error {
		if got := op.usage.Of(large); got.SnapshotChunks != 1 {
			return fmt.Errorf("counted %+v", got)
		}
		return nil
	})
	if problems, err := promtestutil.CollectAndLint(op.usage); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(op.usage)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	namespaces := map[string][]string{}
	for _, family := range families {
		for _, sample := range family.Metric {
			namespaces[family.GetName()] = append(namespaces[family.GetName()], sample.Label[0].GetValue())
		}
		slices.Sort(namespaces[family.GetName()])
	}
	both := []string{"", large}
	want := map[string][]string{"catena_stored_bytes": both, "catena_stored_sessions": both, "catena_stored_snapshot_chunks": both}
	if diff := cmp.Diff(want, namespaces); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	of := func(labels map[string]string) bool { return labels["namespace"] == large }
	if got := sum(t, registry, "catena_stored_sessions", of); got != 101 {
		t.Errorf("got %g sessions, want 101", got)
	}
	if err := env.Client.DeleteAllOf(t.Context(), &v1alpha1.ResponseSession{}, client.InNamespace(large)); err != nil {
		t.Fatal(err)
	}
}
