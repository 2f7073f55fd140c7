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

package testenv

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

const (
	// SystemNamespace is where the operator lives.
	SystemNamespace = "catena-system"

	resolveServiceName = "catena-resolve"
	fieldOwner         = "catena-testenv"
	pollInterval       = 50 * time.Millisecond
)

// Apply applies every manifest in a directory of the repository, "config/samples" for example, and returns the
// objects as the API server answered them. Objects that name no namespace go to "default".
func (e *Environment) Apply(ctx context.Context, dir string) ([]*unstructured.Unstructured, error) {
	objects, err := readManifests(filepath.Join(Root(), dir))
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := e.apply(ctx, object); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// RegisterAPIService applies config/rbac and config/apiservice so that the kube-apiserver proxies the resolve API to the
// given port of this machine. It trusts the CA of Serving.
func (e *Environment) RegisterAPIService(ctx context.Context, port int) error {
	if _, err := e.Apply(ctx, "config/rbac"); err != nil {
		return err
	}
	ca, err := os.ReadFile(e.Serving.CAFile)
	if err != nil {
		return err
	}
	objects, err := readManifests(filepath.Join(Root(), "config", "apiservice"))
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := redirect(object, port, ca); err != nil {
			return fmt.Errorf("unable to redirect %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if err := e.apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// redirect changes the manifests of the resolve API such that they lead to a port of this machine.
func redirect(object *unstructured.Unstructured, port int, ca []byte) error {
	switch object.GetKind() {
	case "Service":
		object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		return nil
	case "APIService":
		if err := unstructured.SetNestedField(object.Object, int64(port), "spec", "service", "port"); err != nil {
			return err
		}
		// A []byte field is base64 in JSON.
		encoded, err := yaml.Marshal(apiregistrationv1.APIServiceSpec{CABundle: ca})
		if err != nil {
			return err
		}
		var spec map[string]any
		if err := yaml.Unmarshal(encoded, &spec); err != nil {
			return err
		}
		return unstructured.SetNestedField(object.Object, spec["caBundle"], "spec", "caBundle")
	default:
		return nil
	}
}

// WaitForAPIService waits until the kube-apiserver passes requests for the resolve API on.
func (e *Environment) WaitForAPIService(ctx context.Context) error {
	discovery, err := discovery.NewDiscoveryClientForConfig(e.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = discovery.RESTClient().Get().AbsPath("/apis", resolvev1alpha1.GroupVersion.Group, resolvev1alpha1.GroupVersion.Version).Do(ctx).Error()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the resolve API is not available: %w", errors.Join(err, last))
	}
	return nil
}

// apply applies object and replaces it with the answer.
func (e *Environment) apply(ctx context.Context, object *unstructured.Unstructured) error {
	namespaced, err := e.Client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	configuration := client.ApplyConfigurationFromUnstructured(object)
	err = e.Client.Apply(ctx, configuration, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("unable to apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// readManifests reads the objects of all YAML files in dir, kustomizations excepted, in the order of the file names,
// namespaces first.
func readManifests(dir string) ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var namespaces, objects []*unstructured.Unstructured
	for _, path := range paths {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		read, err := readManifest(path)
		if err != nil {
			return nil, fmt.Errorf("unable to read %s: %w", path, err)
		}
		for _, object := range read {
			if object.GetKind() == "Namespace" {
				namespaces = append(namespaces, object)
			} else {
				objects = append(objects, object)
			}
		}
	}
	return append(namespaces, objects...), nil
}

func readManifest(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
