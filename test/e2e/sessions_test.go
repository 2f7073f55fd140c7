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
	"fmt"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// createChain creates a chain of turns and returns their IDs, oldest first.
func createChain(t *testing.T, namespace, prefix string, length int) []string {
	t.Helper()
	ids := make([]string, length)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s_%d", prefix, i)
		next := testsession.Make(namespace, ids[i])
		if i > 0 {
			next.After(ids[i-1])
		}
		next.Create(t, env.Client)
	}
	return ids
}
