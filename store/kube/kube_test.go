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
	"os"
	"testing"
	"time"

	_ "gocloud.dev/blob/fileblob" // file://
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/kube"
	"github.com/catena-dev/catena/store/storetest"
)

var (
	// env is the control plane that all tests share, with an operator that sweeps continuously.
	env      *testenv.Environment
	operator *catenatest.Operator
	// bucketDir is the bucket that the operator reads from.
	bucketDir string
)

func TestMain(m *testing.M) {
	if task := os.Getenv(saverVariable); task != "" {
		os.Exit(runSaver(task))
	}
	dir, err := os.MkdirTemp("", "catena-bucket-")
	if err != nil {
		panic(err)
	}
	bucketDir = dir
	code := testenv.RunSuite(m.Run, func(ctx context.Context, started *testenv.Environment) (err error) {
		env = started
		operator, err = env.StartOperator(ctx, catenatest.OperatorOptions{Args: []string{
			"--shutdown-delay-duration=0s", "--snapshot-store=" + bucketURL(), "--snapshot-sweep-interval=1s",
			"--snapshot-grace-period=" + gracePeriod.String(), "--unsafe-snapshot-grace-period", "--snapshot-sweep-hold-off=0s",
		}})
		return err
	})
	_ = os.RemoveAll(bucketDir)
	os.Exit(code)
}

// gracePeriod is the operator's grace period.
const gracePeriod = 14 * time.Second

// bucketURL is the bucket that the operator reads from, and gateways may write to.
func bucketURL() string { return localBucket(bucketDir) }

func localBucket(dir string) string { return "file://" + dir + "?no_tmp_dir=true&metadata=skip" }

func createNamespace(t *testing.T, name string) {
	t.Helper()
	if err := env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// open opens a store of a namespace of its own.
func open(t *testing.T, options kube.Options) *store.Store {
	t.Helper()
	options.Config, options.Namespace = env.Config, env.NewNamespace(t)
	s, err := kube.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	for name, tc := range map[string]struct {
		options kube.Options
		suite   []storetest.Option
	}{
		"bodies in objects":  {kube.Options{}, []storetest.Option{storetest.Programs(8, 40)}},
		"bodies in chunks":   {kube.Options{InlineBytes: -1}, []storetest.Option{storetest.BodiesOnly()}},
		"bodies in a bucket": {kube.Options{InlineBytes: -1, SnapshotStore: bucketURL()}, []storetest.Option{storetest.BodiesOnly()}},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) driver.Store {
				options := tc.options
				options.Config, options.Namespace = env.Config, "default"
				d, _, err := kube.OpenDriver(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}, append(tc.suite, storetest.CreateNamespace(createNamespace), storetest.Patience(testutil.Patience))...)
		})
	}
}
