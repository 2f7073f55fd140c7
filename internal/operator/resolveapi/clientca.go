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
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

// clientCAs are the CAs that authenticate callers and the kube-apiserver's proxy. The kube-apiserver publishes them in a
// ConfigMap, and k8s.io/apiserver starts to serve before it has read it: until then a caller with a certificate is treated as
// anonymous. So the server is not ready until it has loaded the published CAs. Requests that arrive earlier, for example
// because a container has restarted in its Pod, are answered with 503: after a 403 a caller would not retry.
type clientCAs struct {
	configMaps typedcorev1.ConfigMapInterface
	// keys are the keys of the ConfigMap that are not overridden by flags.
	keys    []string
	serving *genericapiserver.SecureServingInfo
	// proxy has the headers in which the kube-apiserver's proxy identifies a caller. It is loaded separately from the CAs.
	proxy  *authenticatorfactory.RequestHeaderConfig
	loaded atomic.Bool
}

func newClientCAs(o *Options, config *genericapiserver.Config) (*clientCAs, error) {
	c := &clientCAs{serving: config.SecureServing, proxy: config.Authentication.RequestHeaderConfig}
	if o.Authentication.SkipInClusterLookup || o.Authentication.TolerateInClusterLookupFailure {
		return c, nil
	}
	if o.Authentication.ClientCert.ClientCA == "" {
		c.keys = append(c.keys, "client-ca-file")
	}
	if o.Authentication.RequestHeader.ClientCAFile == "" {
		c.keys = append(c.keys, "requestheader-client-ca-file")
	}
	clientConfig, err := clientcmd.BuildConfigFromFlags("", o.Authentication.RemoteKubeConfigFile)
	if err != nil {
		return nil, fmt.Errorf("unable to load --authentication-kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(clientConfig)
	if err != nil {
		return nil, fmt.Errorf("unable to create a client for authentication: %w", err)
	}
	c.configMaps = client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return c, nil
}

// check returns an error until the CAs are loaded. After that they may be replaced.
func (c *clientCAs) check(request *http.Request) error {
	if c.loaded.Load() || len(c.keys) == 0 {
		return nil
	}
	published, err := c.configMaps.Get(request.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("unable to read the client CAs: %w", err)
	}
	content := c.serving.ClientCA.CurrentCABundleContent()
	for _, key := range c.keys {
		if ca := bytes.TrimSpace([]byte(published.Data[key])); !bytes.Contains(content, ca) {
			return errors.New("the client CAs have not been loaded yet")
		}
	}
	if c.proxy != nil && len(c.proxy.UsernameHeaders.Value()) == 0 {
		return errors.New("the request headers of the kube-apiserver's proxy have not been loaded yet")
	}
	c.loaded.Store(true)
	return nil
}

// guard answers requests for the API with 503 until the CAs are loaded.
func (c *clientCAs) guard(next http.Handler) http.Handler {
	prefix := "/apis/" + resolvev1alpha1.GroupVersion.Group
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, prefix) && c.check(req) != nil {
			responsewriters.ErrorNegotiated(newUnavailable("the server is starting"), codecs, resolvev1alpha1.GroupVersion, w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}
