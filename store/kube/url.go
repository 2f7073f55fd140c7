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

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/store/driver"
)

func init() { driver.Register("kube", openURL) }

// openURL opens the driver for a URL. The package comment documents its parameters.
func openURL(ctx context.Context, rawURL string) (driver.Store, driver.Options, error) {
	options, err := parseURL(rawURL)
	if err != nil {
		return nil, driver.Options{}, err
	}
	return openDriver(ctx, options)
}

// parameters are the parameters of a URL. Errors do not contain their values, which may be secrets.
var parameters = []string{
	"namespace", "kubeconfig", "context", "resolve-host", "resolve-ca-file", "snapshot-store", "max-turn-bytes", "inline-bytes",
	"max-requests",
}

func parseURL(rawURL string) (Options, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return Options{}, errors.New("invalid URL")
	}
	query, err := driver.ParseParameters(u.RawQuery, parameters...)
	if err != nil {
		return Options{}, err
	}
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.Fragment != "" {
		return Options{}, errors.New("the URL must be kube: followed only by parameters")
	}
	options := Options{
		SnapshotStore: query["snapshot-store"],
		ResolveHost:   query["resolve-host"], ResolveTLS: rest.TLSClientConfig{CAFile: query["resolve-ca-file"]},
	}
	if options.ResolveTLS.CAFile != "" && options.ResolveHost == "" {
		return Options{}, errors.New("parameter \"resolve-ca-file\" requires \"resolve-host\"")
	}
	for key, option := range map[string]*int{
		"max-turn-bytes": &options.MaxTurnBytes, "inline-bytes": &options.InlineBytes, "max-requests": &options.MaxRequests,
	} {
		if query[key] == "" {
			continue
		}
		if *option, err = strconv.Atoi(query[key]); err != nil {
			return Options{}, fmt.Errorf("parameter %q must be a number", key)
		}
	}
	options.Config, options.Namespace, err = findCluster(query)
	return options, err
}

// findCluster returns the configuration and the namespace for the parameters of a URL.
func findCluster(query map[string]string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = query["kubeconfig"]
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: query["context"]})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("unable to load the configuration of the Kubernetes client: %w", err)
	}
	namespace := query["namespace"]
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("unable to determine the namespace: %w", err)
		}
	}
	return config, namespace, nil
}
