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
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
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
		"bucket of another cluster": {bucket: localBucket(foreign), wantError: "belongs to another"},
		"unclaimed bucket":          {bucket: localBucket(unclaimed), wantError: "no cluster has claimed", wantRetryable: true},
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
			checked := s.Check(t.Context())
			if tc.wantError == "" {
				if err := errors.Join(got, checked); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Get(t.Context(), "resp_1"); err != nil {
					t.Error(err)
				}
				return
			}
			for operation, got := range map[string]error{"save": got, "check": checked} {
				if got == nil || !strings.Contains(got.Error(), tc.wantError) || store.IsRetryable(got) != tc.wantRetryable {
					t.Errorf("%s: got %v (retryable: %t), want %q (%t)", operation, got, store.IsRetryable(got), tc.wantError, tc.wantRetryable)
				}
			}
			wantTurns(t, namespace)
		})
	}
}

// TestGatewayChecksItsBucket: a gateway with the bucket of another cluster ends when it starts, before any turn is lost. If the
// bucket is unclaimed or the cluster cannot be reached, it logs a warning and serves.
func TestGatewayChecksItsBucket(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "catena-cluster"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	namespace := env.NewNamespace(t)
	kubeconfig, err := env.Editor(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(unreachable, []byte(`{"current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = "Unable to check the store"
	tests := map[string]struct {
		bucket, kubeconfig string
		wantLog            []string
		wantEnd            bool
	}{
		"bucket of its cluster":     {bucketURL(), kubeconfig, nil, false},
		"bucket of another cluster": {localBucket(foreign), kubeconfig, []string{"unable to use the store: the bucket belongs to another cluster"}, true},
		"unclaimed bucket":          {localBucket(t.TempDir()), kubeconfig, []string{warning, "no cluster has claimed the bucket"}, false},
		"cluster is unreachable":    {bucketURL(), unreachable, []string{warning, "connection refused"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before, _ := os.ReadFile(env.GatewayLog()) // of all gateways
			gateway, err := env.StartGateway(t.Context(), testenv.GatewayOptions{
				Namespace: namespace, Upstream: "http://127.0.0.1:1",
				Args: []string{"--store=" + testenv.StoreURL(namespace, tc.kubeconfig) + "&snapshot-store=" + url.QueryEscape(tc.bucket)},
			})
			if (err != nil) != tc.wantEnd {
				t.Errorf("got the error %v, want one: %t", err, tc.wantEnd)
			}
			if err == nil {
				if err := gateway.Stop(); err != nil {
					t.Error(err)
				}
			}
			all, err := os.ReadFile(env.GatewayLog())
			if err != nil {
				t.Fatal(err)
			}
			log := string(all[len(before):])
			for _, want := range tc.wantLog {
				if !strings.Contains(log, want) {
					t.Errorf("the log does not contain %q:\n%s", want, log)
				}
			}
			if len(tc.wantLog) == 0 && strings.Contains(log, warning) {
				t.Errorf("unexpected warning:\n%s", log)
			}
		})
	}
}

// TestCheckOfUnresponsiveCluster: Check ends, with an error that is retryable, if the kube-apiserver never responds.
func TestCheckOfUnresponsiveCluster(t *testing.T) {
	bucket := localBucket(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		silent := transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		config := &rest.Config{Host: "http://localhost", Transport: silent}
		s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: "default", SnapshotStore: bucket})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); !store.IsRetryable(err) {
			t.Errorf("got %v, want a retryable error", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
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
