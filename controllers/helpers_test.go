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
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// turn returns a completed session. If previous is given, it is the response ID of the parent.
func turn(namespace, id string, previous ...string) *v1alpha1.ResponseSession {
	return testsession.Make(namespace, id).After(strings.Join(previous, "")).Obj()
}

func create(t *testing.T, turns ...*v1alpha1.ResponseSession) {
	t.Helper()
	for _, s := range turns {
		if err := env.Client.Create(t.Context(), s); err != nil {
			t.Fatalf("create %s: %v", s.Spec.ResponseID, err)
		}
	}
}

// createChain creates turns that each name the one before as parent: t1, t2 and so on. It returns the sessions.
func createChain(t *testing.T, namespace string, turns int) []*v1alpha1.ResponseSession {
	t.Helper()
	var sessions []*v1alpha1.ResponseSession
	for i := range turns {
		s := turn(namespace, fmt.Sprintf("t%d", i+1))
		if i > 0 {
			s.Spec.PreviousResponseID = sessions[i-1].Spec.ResponseID
		}
		create(t, s)
		sessions = append(sessions, s)
	}
	return sessions
}

func get(t *testing.T, namespace, id string) *v1alpha1.ResponseSession {
	t.Helper()
	s := &v1alpha1.ResponseSession{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, s); err != nil {
		t.Fatalf("get %s: %v", id, err)
	}
	return s
}

func list(t *testing.T, opts ...client.ListOption) []v1alpha1.ResponseSession {
	t.Helper()
	sessions := &v1alpha1.ResponseSessionList{}
	if err := env.Client.List(t.Context(), sessions, opts...); err != nil {
		t.Fatalf("list: %v", err)
	}
	return sessions.Items
}

// responseIDs returns the IDs of the sessions listed, sorted.
func responseIDs(t *testing.T, opts ...client.ListOption) []string {
	t.Helper()
	var ids []string
	for _, s := range list(t, opts...) {
		ids = append(ids, s.Spec.ResponseID)
	}
	slices.Sort(ids)
	return ids
}

// overwrite merges a part of a spec, in JSON, into that of a session.
func overwrite(t *testing.T, namespace, id, spec string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))
	if err := env.Client.Patch(t.Context(), turn(namespace, id), patch); err != nil {
		t.Fatalf("overwrite %s: %v", id, err)
	}
}

// remove deletes one turn and keeps its descendants, as the library does.
func remove(t *testing.T, namespace, id string) {
	t.Helper()
	deleteWith(t, namespace, id, metav1.DeletePropagationOrphan)
}

// deleteWith deletes a turn and waits until it is gone.
func deleteWith(t *testing.T, namespace, id string, policy metav1.DeletionPropagation) {
	t.Helper()
	s := get(t, namespace, id)
	if err := env.Client.Delete(t.Context(), s, client.PropagationPolicy(policy)); err != nil {
		t.Fatalf("delete %s: %v", id, err)
	}
	waitUntilGone(t, s)
}

func waitUntilGone(t *testing.T, s *v1alpha1.ResponseSession) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		current := &v1alpha1.ResponseSession{}
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(s), current)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil && current.UID == s.UID {
			return fmt.Errorf("%s still exists", s.Spec.ResponseID)
		}
		return nil
	})
}

// verdict is a session's status without its times.
type verdict struct {
	Status   metav1.ConditionStatus
	Reason   string
	Depth    int32
	Root     string
	BrokenAt string
}

func resolved(depth int32, root string) verdict {
	return verdict{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolved, Depth: depth, Root: root}
}

func verdictOf(s *v1alpha1.ResponseSession) verdict {
	v := verdict{Depth: s.Status.Depth, Root: s.Status.RootResponseID, BrokenAt: s.Status.BrokenAt}
	condition := testsession.ChainValid(s)
	v.Status, v.Reason = condition.Status, condition.Reason
	return v
}

// wantVerdicts waits until the sessions of a namespace have exactly the verdicts given, by response ID, each on the
// session's current generation.
func wantVerdicts(t *testing.T, namespace string, want map[string]verdict) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		got := map[string]verdict{}
		for _, s := range list(t, client.InNamespace(namespace)) {
			got[s.Spec.ResponseID] = verdictOf(&s)
			condition := testsession.ChainValid(&s)
			if condition.Status == "" || condition.ObservedGeneration != s.Generation || s.Status.ObservedGeneration != s.Generation {
				return fmt.Errorf("%s has no verdict at generation %d: %+v", s.Spec.ResponseID, s.Generation, s.Status)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("verdicts (-want +got):\n%s", diff)
		}
		return nil
	})
}

// with returns a copy of verdicts with others merged into it.
func with(verdicts, others map[string]verdict) map[string]verdict {
	all := maps.Clone(verdicts)
	maps.Copy(all, others)
	return all
}

// metricSum returns the sum of the samples of a metric of the controller.
func metricSum(t *testing.T, name string) float64 {
	t.Helper()
	return sum(t, metrics.Registry, name, func(labels map[string]string) bool {
		return labels["controller"] == "responsesession" || labels["name"] == "responsesession"
	})
}

// sum returns the sum of the samples of a metric that have the given labels.
func sum(t *testing.T, gatherer prometheus.Gatherer, name string, match func(labels map[string]string) bool) float64 {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var total float64
	for _, family := range families {
		for _, sample := range family.Metric {
			labels := map[string]string{}
			for _, label := range sample.Label {
				labels[label.GetName()] = label.GetValue()
			}
			if family.GetName() == name && match(labels) {
				total += sample.GetCounter().GetValue() + sample.GetGauge().GetValue()
			}
		}
	}
	return total
}
