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
	"testing"
	"time"

	"github.com/go-logr/logr"
	_ "gocloud.dev/blob/fileblob" // file://
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
	"github.com/catena-dev/catena/store/storetest"
)

const (
	startTimeout = 10 * time.Minute
	pollInterval = 20 * time.Millisecond
	// patience is far more than anything here takes on a machine of its own.
	patience = 3 * time.Minute
)

var (
	// env is the control plane that all tests share, with an operator that sweeps all the time.
	env      *testenv.Environment
	operator *testenv.Operator
	// bucketDir is the bucket that the operator reads from.
	bucketDir string
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // envtest's
	code := 1
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
	} else {
		code = m.Run()
	}
	if env != nil {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kube:", err)
			code = max(code, 1)
		}
	}
	_ = os.RemoveAll(bucketDir)
	os.Exit(code)
}

func start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout) //nolint:forbidigo // TestMain has no context of a test
	defer cancel()
	if env, err = testenv.Start(ctx, testenv.Options{GarbageCollector: true, UnsafeNoFsync: true}); err != nil {
		return err
	}
	if bucketDir, err = os.MkdirTemp("", "catena-bucket-"); err != nil {
		return err
	}
	operator, err = env.StartOperator(ctx, testenv.OperatorOptions{Args: []string{
		"--shutdown-delay-duration=0s", "--snapshot-store=" + bucketURL(), "--snapshot-sweep-interval=200ms", "--snapshot-grace-period=20s",
	}})
	if err != nil {
		return err
	}
	return errors.Join(env.RegisterAPIService(ctx, operator.Port), env.WaitForAPIService(ctx))
}

// bucketURL is the bucket that the operator reads from, and gateways may write to.
func bucketURL() string { return "file://" + bucketDir + "?no_tmp_dir=true&metadata=skip" }

func createNamespace(t *testing.T, name string) {
	t.Helper()
	if err := env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// open opens a store of a namespace of its own.
func open(t *testing.T, options kube.Options) *kube.Store {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kube-"}}
	if err := env.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	options.Config, options.Namespace = env.Config, namespace.Name
	s, err := kube.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

func TestStore(t *testing.T) {
	for name, options := range map[string]kube.Options{
		"bodies in objects":  {},
		"bodies in chunks":   {InlineBytes: -1},
		"bodies in a bucket": {InlineBytes: -1, SnapshotStore: bucketURL()},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store { return open(t, options) }, storetest.CreateNamespace(createNamespace))
		})
	}
}
