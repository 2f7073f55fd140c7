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

// Package storeurl opens the store that a URL names, so that a gateway takes one setting for any store.
//
//	memory:                      in the process
//	sqlite:turns.db              in a file, by a relative path
//	sqlite:/var/lib/gw/turns.db  in a file, by an absolute path
//
//	kube:                        in a Kubernetes cluster; see kube.OpenURL for its parameters
//
// All of them take ?namespace=NAME. Without it, the namespace is "default", or that of the kubeconfig or the Pod.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
	"github.com/catena-dev/catena/store/memory"
	"github.com/catena-dev/catena/store/sqlite"
)

// DefaultNamespace is the namespace of a store whose URL names none.
const DefaultNamespace = "default"

// opener opens the store of a URL, whose scheme it has been chosen by.
type opener func(ctx context.Context, url string) (store.Store, error)

// openers are by scheme.
var openers = map[string]opener{
	"kube":   openKube,
	"memory": openMemory,
	"sqlite": openSQLite,
}

// Open opens the store that a URL names. Close it. The errors do not repeat the URL, which may have a password in it.
func Open(ctx context.Context, url string) (store.Store, error) {
	known := strings.Join(slices.Sorted(maps.Keys(openers)), ":, ") + ":"
	scheme, _, found := strings.Cut(url, ":")
	if !found {
		return nil, fmt.Errorf("unable to open the store: its URL must begin with one of %s", known)
	}
	open, found := openers[scheme]
	if !found {
		return nil, fmt.Errorf("unable to open the store: the scheme %.32q of its URL is not known: must be one of %s", scheme, known)
	}
	s, err := open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("unable to open the store of the %s URL: %w", scheme, err)
	}
	return s, nil
}

func openMemory(_ context.Context, url string) (store.Store, error) {
	path, namespace, err := parse(url)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return nil, errors.New("it must have no path")
	}
	return memory.New(memory.Options{Namespace: namespace}), nil
}

func openKube(ctx context.Context, url string) (store.Store, error) {
	s, err := kube.OpenURL(ctx, url)
	if err != nil {
		return nil, err // not a nil *kube.Store, which is no nil store.Store
	}
	return s, nil
}

func openSQLite(ctx context.Context, url string) (store.Store, error) {
	path, namespace, err := parse(url)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("it must have the path of a file")
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{Namespace: namespace})
	if err != nil {
		return nil, err // not a nil *sqlite.Store, which is no nil store.Store
	}
	return s, nil
}

// parse returns the path of a URL without a host, and its namespace.
func parse(rawURL string) (path, namespace string, err error) {
	_, rest, _ := strings.Cut(rawURL, ":")
	path, rawQuery, _ := strings.Cut(rest, "?")
	if authority, found := strings.CutPrefix(path, "//"); found {
		if !strings.HasPrefix(authority, "/") {
			return "", "", errors.New("it must have no host: a relative path follows the colon")
		}
		path = authority
	}
	if path, err = url.PathUnescape(path); err != nil {
		return "", "", errors.New("its path has a percent sign that no two digits follow: write %25")
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return "", "", errors.New("its query must be ?namespace=NAME")
	}
	namespace = DefaultNamespace
	for name, values := range query {
		if name != "namespace" || len(values) != 1 || values[0] == "" {
			return "", "", fmt.Errorf("its parameter %.32q is not known, or has no single value: the only one is namespace=NAME", name)
		}
		namespace = values[0]
	}
	return path, namespace, nil
}
