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

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestBucketOfAnotherCluster: the operator exits before two clusters treat each other's snapshots as leftovers.
func TestBucketOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "catena-cluster"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := env.StartOperator(t.Context(), catenatest.OperatorOptions{Args: []string{"--snapshot-store=file://" + dir + "?no_tmp_dir=true"}})
	if err == nil { // it was ready before it exited
		select {
		case <-second.Done():
		case <-time.After(testutil.Patience):
			t.Fatal("the operator is still running")
		}
	}
	log, err := os.ReadFile(operator.LogFile) // of all operators
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "it is claimed by another, and this cluster is") {
		t.Errorf("the log does not contain the reason:\n%s", log)
	}
}

// asGateway returns a configuration with only the permissions of a gateway in a namespace.
func asGateway(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	for _, role := range []string{"catena-reader", "catena-edit"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "gateway-of-" + namespace}},
		}
		if err := env.Client.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "gateway-of-" + namespace, Groups: []string{"system:authenticated"}}
	return config
}

// TestGatewayWithBucket: a gateway with the permissions of its role writes to the bucket of its cluster, and not to any other.
func TestGatewayWithBucket(t *testing.T) {
	unclaimed, foreign := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "catena-cluster"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		bucket, wantError string
		wantRetryable     bool
	}{
		"bucket of its cluster":     {bucket: bucketURL()},
		"bucket of another cluster": {bucket: "file://" + foreign + "?no_tmp_dir=true&metadata=skip", wantError: "belongs to another"},
		"unclaimed bucket":          {bucket: "file://" + unclaimed + "?no_tmp_dir=true&metadata=skip", wantError: "no cluster has claimed", wantRetryable: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a retry waits
			namespace := env.NewNamespace(t)
			s, err := kube.Open(t.Context(), kube.Options{Config: asGateway(t, namespace), Namespace: namespace, SnapshotStore: tc.bucket})
			if err != nil {
				t.Fatal(err)
			}
			var got error
			testutil.Eventually(t, func(context.Context) error { // the permissions take effect a few milliseconds later
				if got = s.Save(t.Context(), largeTurn("resp_1", ""), store.SaveOptions{}); strings.Contains(fmt.Sprint(got), "forbidden") {
					return got
				}
				return nil
			})
			if tc.wantError == "" {
				if got != nil {
					t.Fatal(got)
				}
				if _, err := s.Get(t.Context(), "resp_1"); err != nil {
					t.Error(err)
				}
				return
			}
			if got == nil || !strings.Contains(got.Error(), tc.wantError) || store.IsRetryable(got) != tc.wantRetryable {
				t.Errorf("got %v (retryable: %t), want %q (%t)", got, store.IsRetryable(got), tc.wantError, tc.wantRetryable)
			}
			wantTurns(t, namespace)
		})
	}
}

// TestBucketMoved: while the bucket is not at its configured location, its turns cannot be read, but none is marked.
func TestBucketMoved(t *testing.T) {
	s := open(t, kube.Options{SnapshotStore: bucketURL()})
	namespace := s.Namespace()
	save(t, s, largeTurn("resp_1", ""))
	save(t, s, testturn.Make("resp_2", "resp_1"))
	testsession.WaitForReason(t, env.Client, namespace, "resp_2", v1alpha1.ReasonResolved)

	moved := bucketDir + "-moved"
	if err := errors.Join(os.Rename(bucketDir, moved), os.Mkdir(bucketDir, 0o700)); err != nil {
		t.Fatal(err)
	}
	back := func() error { return errors.Join(os.RemoveAll(bucketDir), os.Rename(moved, bucketDir)) }
	defer func() {
		if _, err := os.Stat(moved); err == nil {
			_ = back()
		}
	}()
	if err := edit(t, namespace, "resp_1", "edited"); err != nil { // so that the operator must read it again
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("Get returned %v, want ErrUnreachable", err)
	}
	if _, err := s.Resolve(t.Context(), "resp_2", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("Resolve returned %v, want ErrUnreachable", err)
	}
	for _, id := range []string{"resp_1", "resp_2"} {
		for _, condition := range object(t, namespace, id).Status.Conditions {
			if condition.Status == metav1.ConditionFalse {
				t.Errorf("%s has a false condition: %+v", id, condition)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(bucketDir, "catena-cluster")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty bucket was claimed: %v", err)
	}

	if err := back(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		_, err := s.Resolve(t.Context(), "resp_2", store.ResolveOptions{})
		return err
	})
	testsession.WaitForReason(t, env.Client, namespace, "resp_2", v1alpha1.ReasonResolved)
}
