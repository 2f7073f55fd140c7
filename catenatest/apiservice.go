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

package catenatest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/subprocess"
)

const (
	// systemNamespace is the operator's namespace.
	systemNamespace    = "catena-system"
	resolveServiceName = "catena-resolve"
)

// WaitForResolveAPI waits until the kube-apiserver reaches an operator's resolve API. StartOperator has done so already.
func (e *Environment) WaitForResolveAPI(ctx context.Context) error {
	discovery, err := discovery.NewDiscoveryClientForConfig(e.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, subprocess.Patience)
	defer cancel()
	group := resolvev1alpha1.GroupVersion
	var last error
	err = wait.PollUntilContextCancel(ctx, subprocess.PollInterval, true, func(ctx context.Context) (bool, error) {
		last = discovery.RESTClient().Get().AbsPath("/apis", group.Group, group.Version).Do(ctx).Error()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the resolve API is not available: %w", errors.Join(err, last))
	}
	return nil
}

// applyConfig applies one directory of config.
func (e *Environment) applyConfig(ctx context.Context, dir string) error {
	objects, err := manifests.Read(config.FS, dir)
	if err != nil {
		return err
	}
	return manifests.Apply(ctx, e.Client, objects...)
}

// registerAPIService makes the kube-apiserver proxy the resolve API to a port of this machine.
func (e *Environment) registerAPIService(ctx context.Context, port int) error {
	ca, err := os.ReadFile(e.serving.ca)
	if err != nil {
		return err
	}
	objects, err := manifests.Read(config.FS, "apiservice")
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := redirect(object, port, ca); err != nil {
			return fmt.Errorf("unable to redirect %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return manifests.Apply(ctx, e.Client, objects...)
}

// redirect changes an object of config/apiservice so that it leads to a port of this machine.
func redirect(object *unstructured.Unstructured, port int, ca []byte) error {
	switch object.GetKind() {
	case "Service":
		object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		return nil
	case "APIService":
		return errors.Join(
			unstructured.SetNestedField(object.Object, int64(port), "spec", "service", "port"),
			unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString(ca), "spec", "caBundle"))
	default:
		return nil
	}
}
