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

package manifests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testmain"
	"github.com/catena-dev/catena/internal/testutil"
)

const (
	fieldOwner = client.FieldOwner("manifests-test")
	// encryptionKey replaces the placeholder in config/examples/encryption.yaml.
	encryptionKey = "Y2F0ZW5hIGNhdGVuYSBjYXRlbmEgY2F0ZW5hIGNhdGU="
)

func TestMain(m *testing.M) {
	os.Exit(testmain.Run(m.Run, func(context.Context) (func() error, error) {
		return func() error {
			if shared == nil {
				return nil
			}
			return shared.stop()
		}, nil
	}))
}

// shared is the cluster of the tests that leave no installation behind, once one has asked for it.
var shared *cluster

// cluster is a control plane that encrypts and audits as config/examples do.
type cluster struct {
	*testenv.Environment

	dir string
}

// sharedCluster starts the shared cluster, or skips the test with -short.
func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	testenv.SkipIfShort(t)
	if shared == nil {
		started, err := startCluster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shared = started
	}
	return shared
}

func startCluster(ctx context.Context) (*cluster, error) {
	dir, err := os.MkdirTemp("", "catena-manifests-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	examples := filepath.Join(testutil.Root(), "config", "examples")
	encryption, err := os.ReadFile(filepath.Join(examples, "encryption.yaml"))
	if err != nil {
		return nil, err
	}
	encryption = bytes.Replace(encryption, []byte("REPLACE_WITH_32_RANDOM_BYTES_IN_BASE64"), []byte(encryptionKey), 1)
	if err := os.WriteFile(filepath.Join(dir, "encryption.yaml"), encryption, 0o600); err != nil {
		return nil, err
	}
	c.Environment, err = testenv.Start(ctx, catenatest.Options{
		Dir:              filepath.Join(dir, "cluster"),
		GarbageCollector: catenatest.Required,
		APIServerFlags: map[string]string{
			"encryption-provider-config": filepath.Join(dir, "encryption.yaml"),
			"audit-policy-file":          filepath.Join(examples, "audit-policy.yaml"),
			"audit-log-path":             c.auditLog(),
		},
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *cluster) stop() error { return errors.Join(c.Stop(), os.RemoveAll(c.dir)) }

func (c *cluster) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// events returns the audited requests of a user, in the order of their answers.
func (c *cluster) events(t *testing.T, user string) []auditv1.Event {
	t.Helper()
	content, err := os.ReadFile(c.auditLog())
	if err != nil {
		t.Fatal(err)
	}
	var events []auditv1.Event
	for line := range strings.Lines(string(content)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			break // a line that is being written
		}
		if event.User.Username == user && event.Stage == auditv1.StageResponseComplete {
			events = append(events, event)
		}
	}
	return events
}

// apply applies an object to the server, which completes it.
func apply(ctx context.Context, c client.Client, object *unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, fieldOwner, client.ForceOwnership)
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// ensureNamespaces creates the namespaces that the tests need.
func ensureNamespaces(t *testing.T, c client.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
}

// TestServerAccepts: a kube-apiserver accepts every object, as server-side apply does: without unknown fields.
func TestServerAccepts(t *testing.T) {
	c := sharedCluster(t)
	ensureNamespaces(t, c.Client, namespace, "team-a", "team-b")
	seen := map[string]bool{}
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, object := range objects {
			text := toText(t, []*unstructured.Unstructured{object})
			if seen[text] {
				continue
			}
			seen[text] = true
			err := apply(t.Context(), c.Client, object.DeepCopy(), client.DryRunAll)
			group := object.GroupVersionKind().Group
			if meta.IsNoMatchError(errors.Unwrap(err)) && (group == "cert-manager.io" || group == "monitoring.coreos.com") {
				continue // not installed here
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}
