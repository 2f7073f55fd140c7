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

package resolveapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// clientCAs are the CAs by which callers and the kube-apiserver's proxy are recognised. The kube-apiserver publishes them
// in a ConfigMap, and k8s.io/apiserver begins to serve before it has read that: until then a caller with a certificate is
// taken for an anonymous one. So the server is not ready before it has loaded the CAs that were there when it was made.
type clientCAs struct {
	published [][]byte
	serving   *genericapiserver.SecureServingInfo
	loaded    atomic.Bool
}

// newClientCAs reads what is published.
func newClientCAs(ctx context.Context, o *Options, serving *genericapiserver.SecureServingInfo) (*clientCAs, error) {
	c := &clientCAs{serving: serving}
	if o.Authentication.SkipInClusterLookup {
		return c, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Authentication.RemoteKubeConfigFile)
	if err != nil {
		return nil, fmt.Errorf("unable to load --authentication-kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("unable to make a client for authentication: %w", err)
	}
	configMap, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("unable to read the CAs of the kube-apiserver's callers: %w", err)
	}
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if ca := bytes.TrimSpace([]byte(configMap.Data[key])); len(ca) > 0 {
			c.published = append(c.published, ca)
		}
	}
	return c, nil
}

// check returns an error until the CAs are loaded. From then on they may be replaced.
func (c *clientCAs) check(*http.Request) error {
	if c.loaded.Load() || len(c.published) == 0 {
		return nil
	}
	content := c.serving.ClientCA.CurrentCABundleContent()
	for _, ca := range c.published {
		if !bytes.Contains(content, ca) {
			return errors.New("the CAs of callers have not been loaded yet")
		}
	}
	c.loaded.Store(true)
	return nil
}
