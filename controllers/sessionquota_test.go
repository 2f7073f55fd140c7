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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	promtestutil "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/testutil"
)

// newQuota returns a SessionQuota that limits a namespace to a number of bytes, or only counts if that is empty.
func newQuota(namespace, name, hard string) *v1alpha1.SessionQuota {
	quota := &v1alpha1.SessionQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if hard != "" {
		quota.Spec.Hard.Bytes = new(resource.MustParse(hard))
	}
	return quota
}

// newChunk returns a chunk of no session, as any tenant can create it. If size is empty, it has no size annotation.
func newChunk(namespace, key, data, size string) *v1alpha1.SnapshotChunk {
	chunk := &v1alpha1.SnapshotChunk{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SnapshotChunkName(strings.Repeat(key, 26), 0)},
		Spec:       v1alpha1.SnapshotChunkSpec{Data: []byte(data)},
	}
	if size != "" {
		chunk.Annotations = map[string]string{v1alpha1.DataSizeAnnotation: size}
	}
	return chunk
}

// stored returns the usage of a namespace, counted object by object.
func stored(t *testing.T, namespace string) v1alpha1.SessionUsage {
	t.Helper()
	c, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	var bytesStored int64
	sessions := list(t, client.InNamespace(namespace))
	for _, s := range sessions {
		raw, err := kubeclient.GetRaw(t.Context(), c, kubeclient.Sessions, client.ObjectKeyFromObject(&s))
		if err != nil {
			t.Fatal(err)
		}
		bytesStored += int64(len(bytes.TrimSpace(raw)))
		if s.Spec.Snapshot != nil && s.Spec.Snapshot.Store == v1alpha1.SnapshotStoreBlob {
			bytesStored += s.Spec.Snapshot.StoredBytes
		}
	}
	chunks := &v1alpha1.SnapshotChunkList{}
	if err := env.Client.List(t.Context(), chunks, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, chunk := range chunks.Items {
		metadata, err := json.Marshal(chunk.ObjectMeta)
		if err != nil {
			t.Fatal(err)
		}
		data := int64(512 << 10)
		if chunk.Annotations[v1alpha1.DataSizeAnnotation] != "" {
			data = int64(len(chunk.Spec.Data)+2) / 3 * 4
		}
		bytesStored += int64(len(metadata)) + data
	}
	for _, kind := range []string{kubeclient.Conversations, kubeclient.Summaries} {
		_, err := kubeclient.StreamList(t.Context(), c.Get().Namespace(namespace).Resource(kind), func(object gjson.Result) {
			bytesStored += int64(len(object.Raw))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return v1alpha1.SessionUsage{
		Bytes:    *resource.NewQuantity((bytesStored+1023)/1024*1024, resource.BinarySI),
		Sessions: int64(len(sessions)), SnapshotChunks: int64(len(chunks.Items)),
	}
}

// getQuota returns a quota with the status of its Exceeded condition and the reason.
func getQuota(ctx context.Context, namespace, name string) (quota *v1alpha1.SessionQuota, exceeded string, err error) {
	quota = &v1alpha1.SessionQuota{}
	if err := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, quota); err != nil {
		return nil, "", err
	}
	condition := meta.FindStatusCondition(quota.Status.Conditions, v1alpha1.ConditionExceeded)
	if condition == nil || quota.Status.Used == nil {
		return nil, "", fmt.Errorf("quota %s has the status %+v", name, quota.Status)
	}
	return quota, string(condition.Status) + " " + condition.Reason, nil
}

var sameQuantity = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

// wantUsage waits until a quota has the usage of its namespace, and its condition.
func wantUsage(t *testing.T, namespace, name, wantExceeded string) *v1alpha1.SessionQuota {
	t.Helper()
	var quota *v1alpha1.SessionQuota
	testutil.Eventually(t, func(ctx context.Context) (err error) {
		var exceeded string
		if quota, exceeded, err = getQuota(ctx, namespace, name); err != nil {
			return err
		}
		want := stored(t, namespace)
		if diff := cmp.Diff(want, *quota.Status.Used, sameQuantity); diff != "" || exceeded != wantExceeded || quota.Status.ObservedGeneration != quota.Generation {
			return fmt.Errorf("quota %s is %s at generation %d, want %s, usage (-want +got):\n%s", name, exceeded, quota.Status.ObservedGeneration, wantExceeded, diff)
		}
		return nil
	})
	return quota
}

func createAll(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s: %v", object.GetName(), err)
		}
	}
}

// TestSessionQuota follows the usage of a namespace: sessions, chunks of no session, snapshots in a bucket, Conversations, summaries of none, and
// what happens while no operator runs.
func TestSessionQuota(t *testing.T) {
	ns := env.NewNamespace(t)
	createAll(t, newQuota(ns, "count", ""), newQuota(ns, "limit", "1Gi"))
	for name, want := range map[string]string{"count": "False NoLimit", "limit": "False WithinLimit"} {
		if got := wantUsage(t, ns, name, want); got.Status.Used.Bytes.Value() != 0 {
			t.Errorf("an empty namespace uses %s", got.Status.Used.Bytes.String())
		}
	}
	inBucket := turn(ns, "bucket")
	inBucket.Spec.Request, inBucket.Spec.Response = nil, nil
	inBucket.Spec.Snapshot = &v1alpha1.SnapshotReference{
		Store: v1alpha1.SnapshotStoreBlob, Key: strings.Repeat("a", 26), Parts: 1, SizeBytes: 9 << 20, StoredBytes: 5 << 20, SHA256: strings.Repeat("0", 64),
	}
	misnamed := turn(ns, "no_name__at_all")
	misnamed.Name = "sha256." + strings.Repeat("a", 52)
	createAll(t, turn(ns, "a"), turn(ns, "b", "a"), inBucket, misnamed,
		newChunk(ns, "b", "data", v1alpha1.DataSize([]byte("data"))), newChunk(ns, "c", "data", ""))
	settle(t, ns)
	got := wantUsage(t, ns, "limit", "False WithinLimit")
	wantUsage(t, ns, "count", "False NoLimit")
	if used := got.Status.Used.Bytes.Value(); used < 5<<20+512<<10 || got.Status.Used.Sessions != 4 || got.Status.Used.SnapshotChunks != 2 {
		t.Errorf("got the usage %+v", got.Status.Used)
	}
	summary := newSummary(ns, "conv")
	summary.Spec.Content = strings.Repeat("x", 60_000)
	createAll(t, summary)
	if larger := wantUsage(t, ns, "limit", "False WithinLimit"); larger.Status.Used.Bytes.Value() < got.Status.Used.Bytes.Value()+60_000 {
		t.Errorf("a summary does not count: %+v", larger.Status.Used)
	}
	overwrite(t, ns, "a", `{"metadata":{"large":"`+strings.Repeat("x", 100_000)+`"}}`)
	wantUsage(t, ns, "limit", "False WithinLimit")
	remove(t, ns, "a")
	wantUsage(t, ns, "limit", "False WithinLimit")

	restartOperator(t, func() {
		remove(t, ns, "bucket")
		createAll(t, turn(ns, "c"), newChunk(ns, "d", strings.Repeat("x", 10_000), v1alpha1.DataSize(make([]byte, 10_000))))
		if err := env.Client.Delete(t.Context(), newChunk(ns, "c", "", "")); err != nil {
			t.Fatal(err)
		}
	})
	wantUsage(t, ns, "limit", "False WithinLimit")
	wantUsage(t, ns, "count", "False NoLimit")

	for _, kind := range []client.Object{&v1alpha1.ResponseSession{}, &v1alpha1.SnapshotChunk{}, &v1alpha1.ConversationSummary{}} {
		if err := env.Client.DeleteAllOf(t.Context(), kind, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
	wantUsage(t, ns, "limit", "False WithinLimit")
}

// TestSessionQuotaLimit: the condition follows the limit and the usage, and its time changes only with its status.
func TestSessionQuotaLimit(t *testing.T) {
	ns := env.NewNamespace(t)
	createAll(t, turn(ns, "a"), newQuota(ns, "quota", "1Gi"))
	settle(t, ns)
	set := func(hard string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hard":{"bytes":`+hard+`}}}`))
		if err := env.Client.Patch(t.Context(), newQuota(ns, "quota", ""), patch); err != nil {
			t.Fatal(err)
		}
	}
	since := func(quota *v1alpha1.SessionQuota) time.Time {
		return quota.Status.Conditions[0].LastTransitionTime.Time
	}
	first := wantUsage(t, ns, "quota", "False WithinLimit")
	op.clock.SetTime(op.clock.Now().Add(time.Hour))
	set("null")
	if second := wantUsage(t, ns, "quota", "False NoLimit"); !since(second).Equal(since(first)) {
		t.Errorf("the condition changed at %s, want %s", since(second), since(first))
	}
	set(`"1Ki"`)
	if third := wantUsage(t, ns, "quota", "True LimitReached"); !since(third).Equal(op.clock.Now()) {
		t.Errorf("the condition changed at %s, want %s", since(third), op.clock.Now())
	}
	set(`"0.5Gi"`)
	wantUsage(t, ns, "quota", "False WithinLimit")
	set("0")
	remove(t, ns, "a")
	if empty := wantUsage(t, ns, "quota", "True LimitReached"); !empty.IsExceeded() {
		t.Error("an empty namespace with a limit of 0 is not at its limit")
	}
}

// TestSessionQuotaTable: kubectl shows the usage beside the limit.
func TestSessionQuotaTable(t *testing.T) {
	ns := env.NewNamespace(t)
	createAll(t, newQuota(ns, "quota", "10Gi"), newChunk(ns, "a", "data", ""))
	wantUsage(t, ns, "quota", "False WithinLimit")
	c, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Get().Namespace(ns).Resource(kubeclient.Quotas).SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(raw, table); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		got[column.Name] = table.Rows[0].Cells[i]
	}
	delete(got, "Age")
	want := map[string]any{"Name": "quota", "Used": "513Ki", "Hard": "10Gi", "Exceeded": "False", "Sessions": 0.0, "Chunks": 1.0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestSessionQuotaInterval: however much a namespace writes, the status is written once in each interval. A new limit counts
// at once.
func TestSessionQuotaInterval(t *testing.T) {
	ns := env.NewNamespace(t)
	createAll(t, turn(ns, "a"))
	quotaInterval = time.Hour
	defer func() {
		quotaInterval = 100 * time.Millisecond
		restartOperator(t, func() {})
	}()
	restartOperator(t, func() {})
	testutil.Eventually(t, func(context.Context) error {
		if !op.usage.HasSynced() {
			return fmt.Errorf("the operator has not counted the usage yet")
		}
		return nil
	})
	settle(t, ns)
	createAll(t, newQuota(ns, "quota", ""))
	before := wantUsage(t, ns, "quota", "False NoLimit")
	createChain(t, ns, 20)
	settle(t, ns)
	if after, _, err := getQuota(t.Context(), ns, "quota"); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the status was written within the interval: %v, %v", after, err)
	}
	after := before.DeepCopy()
	after.Spec.Hard.Bytes = new(resource.MustParse("1"))
	if err := env.Client.Patch(t.Context(), after, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, ns, "quota", "True LimitReached")
	if got := op.writes.to("/namespaces/" + ns + "/sessionquotas/quota/status"); got != 2 {
		t.Errorf("the status was written %d times, want 2", got)
	}
}

// TestWithoutSessionQuotas: if the CRD is missing, as after an upgrade without it, the operator does the rest of its work, and
// counts the usage once the CRD is installed.
func TestWithoutSessionQuotas(t *testing.T) {
	ns := env.NewNamespace(t)
	all, err := manifests.Read(config.FS, "crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	crd := all[slices.IndexFunc(all, func(crd *unstructured.Unstructured) bool {
		return crd.GetName() == "sessionquotas.sessions.catena.dev"
	})]
	restartOperator(t, func() {
		if err := env.Client.Delete(t.Context(), crd.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, func(ctx context.Context) error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd.DeepCopy()); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the CRD still exists: %w", err)
			}
			return nil
		})
	})
	createAll(t, turn(ns, "a"), turn(ns, "b", "a"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a"), "b": resolved(2, "a")})
	if err := manifests.Apply(t.Context(), env.Client, crd); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error { return env.Client.Create(ctx, newQuota(ns, "quota", "1Ki")) })
	wantUsage(t, ns, "quota", "True LimitReached")
	wantRefused(t, env.Client, ns)
}

// TestSessionQuotaMetric: the fullest namespace has a metric, of the smallest of its limits, until that is gone.
func TestSessionQuotaMetric(t *testing.T) {
	ns := env.NewNamespace(t)
	large := turn(ns, "a")
	large.Spec.Response = &runtime.RawExtension{Raw: []byte(`{"text":"` + strings.Repeat("x", 1_000_000) + `"}`)}
	createAll(t, large, newQuota(ns, "large", "1Gi"), newQuota(ns, "small", "1"), newQuota(ns, "none", ""))
	settle(t, ns)
	if problems, err := promtestutil.CollectAndLint(op.quotas); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(op.quotas)
	want := func(lowest, highest float64) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			got := sum(t, registry, "catena_session_quota_used_ratio", func(labels map[string]string) bool { return labels["namespace"] == ns })
			if got < lowest || got > highest {
				return fmt.Errorf("the namespace uses %g of its limit, want from %g to %g", got, lowest, highest)
			}
			return nil
		})
	}
	used := float64(op.usage.Sessions.Usage(ns).Bytes)
	want(used, used)
	if err := env.Client.Delete(t.Context(), newQuota(ns, "small", "")); err != nil {
		t.Fatal(err)
	}
	want(0, 0.01) // another namespace is fuller, or this one has only its large limit
}
