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

package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/store"
	_ "github.com/catena-dev/catena/store/kube"
	_ "github.com/catena-dev/catena/store/sqlite"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	tests := map[string]struct {
		url, namespace, file string
	}{
		"memory":                       {url: "memory:", namespace: store.DefaultNamespace},
		"memory, namespace":            {url: "memory:?namespace=team-a", namespace: "team-a"},
		"relative path":                {url: "sqlite:relative.db", namespace: store.DefaultNamespace, file: "relative.db"},
		"absolute path":                {url: "sqlite:" + filepath.Join(dir, "absolute.db"), namespace: store.DefaultNamespace, file: "absolute.db"},
		"path after slashes":           {url: "sqlite://" + filepath.Join(dir, "slashes.db"), namespace: store.DefaultNamespace, file: "slashes.db"},
		"sqlite, namespace":            {url: "sqlite:n.db?namespace=team%20a", namespace: "team a", file: "n.db"},
		"path with escapes":            {url: "sqlite:a%20b%3Fc%25.db", namespace: store.DefaultNamespace, file: "a b?c%.db"},
		"path with a colon":            {url: "sqlite:./a:b.db", namespace: store.DefaultNamespace, file: "a:b.db"},
		"path with a non-ASCII letter": {url: "sqlite:é+.db", namespace: store.DefaultNamespace, file: "é+.db"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := store.Open(t.Context(), tc.url)
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Unable to close: %v", err)
				}
			})
			turn := &store.Session{ResponseID: "resp_1", Status: store.StatusCompleted}
			if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
				t.Fatalf("Unable to save: %v", err)
			}
			if _, err := s.InNamespace(tc.namespace).Get(t.Context(), "resp_1"); err != nil {
				t.Errorf("The turn is not in the expected namespace: %v", err)
			}
			if _, err := s.InNamespace("another").Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("The turn is visible in another namespace: %v", err)
			}
			if tc.file != "" {
				if _, err := os.Stat(filepath.Join(dir, tc.file)); err != nil {
					t.Errorf("The store is not in the expected file: %v", err)
				}
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	const secret = "swordfish"
	tests := map[string]struct{ url, want string }{
		"empty":                   {url: "", want: "must begin with a scheme: one of kube, memory, sqlite"},
		"no scheme":               {url: secret, want: "must begin with a scheme: one of kube, memory, sqlite"},
		"unknown scheme":          {url: "postgres://user:" + secret + "@host/db", want: `unknown scheme "postgres": must be one of kube, memory, sqlite`},
		"upper case":              {url: "SQLite:turns.db", want: `unknown scheme "SQLite"`},
		"memory with a path":      {url: "memory:" + secret, want: "must not have a path"},
		"no path":                 {url: "sqlite:", want: "unable to open the sqlite store: the URL must have the path of a file"},
		"host":                    {url: "sqlite://user:" + secret + "@turns.db", want: "must not have a host"},
		"unknown parameter":       {url: "memory:?tenant=" + secret, want: `unknown parameter "tenant": must be one of namespace`},
		"no value":                {url: "memory:?namespace=", want: `parameter "namespace" must have one value`},
		"two namespaces":          {url: "memory:?namespace=a&namespace=" + secret, want: `parameter "namespace" must have one value`},
		"invalid query":           {url: "memory:?namespace=%zz" + secret, want: "must be ?NAME=VALUE"},
		"invalid path":            {url: "sqlite:" + secret + "%zz", want: "percent sign"},
		"in-memory SQLite":        {url: "sqlite::memory:", want: "store/memory"},
		"kube, unknown parameter": {url: "kube:?tenant=" + secret, want: `unable to open the kube store: unknown parameter "tenant": must be one of namespace, `},
		"kube, host":              {url: "kube://user:" + secret + "@host", want: "unable to open the kube store: the URL must be kube: followed only by parameters"},
		"kube, not a number":      {url: "kube:?inline-bytes=" + secret, want: `unable to open the kube store: parameter "inline-bytes" must be a number`},
		"kube, two namespaces":    {url: "kube:?namespace=a&namespace=" + secret, want: `parameter "namespace" must have one value`},
		"kube, unused CA":         {url: "kube:?resolve-ca-file=" + secret, want: `"resolve-ca-file" requires "resolve-host"`},
		"no directory":            {url: "sqlite:no/such/turns.db", want: "does not exist"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := store.Open(t.Context(), tc.url)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Unexpected error: want one that contains %q, got %v", tc.want, err)
			}
			if s != nil {
				t.Errorf("Open returned both a store and an error: %v", s)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("The error contains the secret: %v", err)
			}
		})
	}
}
