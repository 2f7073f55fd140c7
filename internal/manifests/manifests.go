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

// Package manifests reads Kubernetes manifests and applies them to a cluster.
package manifests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fieldOwner is the field manager of everything that Apply sets.
const fieldOwner = client.FieldOwner("catena-test")

// Apply applies the objects in order and replaces each with the API server's response. A namespaced object without a
// namespace goes to "default".
func Apply(ctx context.Context, c client.Client, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		namespaced, err := c.IsObjectNamespaced(object)
		if err != nil {
			return err
		}
		if namespaced && object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("unable to apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// Read returns the objects of all YAML files in dir except kustomization.yaml, in the order of the file names, namespaces
// first.
func Read(files fs.FS, dir string) ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(files, path.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var namespaces, objects []*unstructured.Unstructured
	for _, file := range paths {
		if path.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		read, err := parse(content)
		if err != nil {
			return nil, fmt.Errorf("unable to read %s: %w", file, err)
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

func parse(content []byte) ([]*unstructured.Unstructured, error) {
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
