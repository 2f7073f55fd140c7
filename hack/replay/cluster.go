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

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/api/v1alpha1"
)

// cluster is where turns are stored and resolved.
type cluster struct {
	namespace string
	maxDepth  int
	sessions  client.Client
	resolve   rest.Interface
}

func newCluster(config *rest.Config, namespace string, maxDepth int) (*cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, resolvev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	sessions, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	config.APIPath = "/apis"
	config.GroupVersion = &resolvev1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	resolve, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &cluster{namespace: namespace, maxDepth: maxDepth, sessions: sessions, resolve: resolve}, nil
}

func (c *cluster) createNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	if err := c.sessions.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("unable to create namespace %s: %w", c.namespace, err)
	}
	return nil
}

// owner makes a session a child of its parent, so that it goes when that goes.
func owner(parent *v1alpha1.ResponseSession) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind, Name: parent.Name, UID: parent.UID,
		Controller: new(false), BlockOwnerDeletion: new(false),
	}
}

// history is what the resolve API answers, with the items as they came.
type history struct {
	Metadata struct {
		UID types.UID `json:"uid"`
	} `json:"metadata"`
	Turns []string          `json:"turns"`
	Input []json.RawMessage `json:"input"`
}

// get resolves a session. Recorded turns may have been queued.
func (c *cluster) get(ctx context.Context, session *v1alpha1.ResponseSession) (*history, int, error) {
	result := c.resolve.Get().Namespace(c.namespace).Resource(resolvev1alpha1.Resource).Name(session.Name).
		Param("includeIncomplete", "true").Param("maxDepth", strconv.Itoa(c.maxDepth)).Do(ctx)
	if err := result.Error(); err != nil { // has the message of the answer, which that of Raw lacks
		return nil, 0, fmt.Errorf("unable to resolve %q: %w", session.Spec.ResponseID, err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, 0, fmt.Errorf("unable to read the history of %q: %w", session.Spec.ResponseID, err)
	}
	h := &history{}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, 0, fmt.Errorf("unable to read the history of %q: %w", session.Spec.ResponseID, err)
	}
	return h, len(raw), nil
}
