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

package catenatest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/store"
)

var env *catenatest.Environment

// The tests of a package share one environment. Each of them uses its own namespace.
func ExampleMain() {
	testMain := func(m *testing.M) { // TestMain
		os.Exit(catenatest.Main(m, &env, catenatest.Options{}))
	}
	testSave := func(t *testing.T) { // TestSave
		turns := env.Store.InNamespace(env.Namespace(t))
		turn := &store.Session{ResponseID: "resp_1", Status: store.StatusCompleted}
		if err := turns.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = testMain, testSave
}

// A program can use an environment too. This one serves an API with Catena until it is stopped.
func ExampleStart() {
	ctx := context.Background()
	env, err := catenatest.Start(ctx, catenatest.Options{Dir: "state", GarbageCollector: catenatest.Required})
	if err != nil {
		log.Fatal(err)
	}
	defer env.Stop()
	fmt.Println("export KUBECONFIG=" + env.Kubeconfig)
	<-env.Operator.Done()
}
