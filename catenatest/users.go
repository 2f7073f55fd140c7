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
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ConfigFor returns a config that authenticates as a user, without client-side rate limit. The user has the rights that
// RBAC grants to it and its groups. To act as a service account, use the name system:serviceaccount:NAMESPACE:NAME.
func (e *Environment) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	authenticated, err := e.addUser(user, groups)
	if err != nil {
		return nil, err
	}
	return authenticated.Config(), nil
}

// KubeconfigFor writes a kubeconfig file for a user, as ConfigFor does, and returns its path.
func (e *Environment) KubeconfigFor(user string, groups ...string) (string, error) {
	authenticated, err := e.addUser(user, groups)
	if err != nil {
		return "", err
	}
	content, err := kubeconfig(authenticated)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Join(e.dir, "kubeconfigs"), "*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	return file.Name(), errors.Join(err, file.Close())
}

// kubeconfig returns the content of a kubeconfig file for a user.
func kubeconfig(user *envtest.AuthenticatedUser) ([]byte, error) {
	content, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.DisableCompression = true
	}
	return clientcmd.Write(*config)
}

// addUser creates a user. Responses are not compressed: on one machine, that costs more than it saves.
func (e *Environment) addUser(user string, groups []string) (*envtest.AuthenticatedUser, error) {
	authenticated, err := e.envtest.AddUser(envtest.User{Name: user, Groups: groups}, &rest.Config{QPS: -1, DisableCompression: true})
	if err != nil {
		return nil, fmt.Errorf("unable to add user %q: %w", user, err)
	}
	return authenticated, nil
}
