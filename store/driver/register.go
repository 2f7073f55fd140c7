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

package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Opener opens the driver for a URL. The URL begins with the scheme and a colon; the rest is as the user wrote it. Errors must
// not repeat the URL, which may contain a password.
type Opener func(ctx context.Context, url string) (Store, Options, error)

var (
	openersMu sync.RWMutex
	openers   = map[string]Opener{} // by scheme
)

// Register makes store.Open use an opener for URLs with the given scheme. A driver calls it in its package's init function, so
// that importing the package is sufficient. Register panics if the scheme is already registered.
func Register(scheme string, open Opener) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if _, found := openers[scheme]; found {
		panic(fmt.Sprintf("driver: the scheme %q is registered twice", scheme))
	}
	openers[scheme] = open
}

// Open opens the driver for a URL. See store.Open.
func Open(ctx context.Context, rawURL string) (Store, Options, error) {
	openersMu.RLock()
	schemes := slices.Sorted(maps.Keys(openers))
	scheme, _, found := strings.Cut(rawURL, ":")
	open := openers[scheme]
	openersMu.RUnlock()
	switch {
	case len(schemes) == 0:
		return nil, Options{}, errors.New("unable to open the store: no driver is linked in: import store/kube, store/sqlite or store/memory")
	case !found:
		return nil, Options{}, fmt.Errorf("unable to open the store: its URL must begin with a scheme: one of %s", strings.Join(schemes, ", "))
	case open == nil:
		return nil, Options{}, fmt.Errorf("unable to open the store: unknown scheme %.32q: must be one of %s; a scheme is available if its package, such as store/kube, is imported",
			scheme, strings.Join(schemes, ", "))
	}
	d, options, err := open(ctx, rawURL)
	if err != nil {
		return nil, Options{}, fmt.Errorf("unable to open the %s store: %w", scheme, err)
	}
	return d, options, nil
}

// ParseURL splits the URL of a driver without a host, such as sqlite:turns.db?namespace=team-a, into its path and its
// namespace, which is DefaultNamespace if the URL does not specify one.
func ParseURL(rawURL string) (path, namespace string, err error) {
	_, rest, _ := strings.Cut(rawURL, ":")
	path, rawQuery, _ := strings.Cut(rest, "?")
	if authority, found := strings.CutPrefix(path, "//"); found {
		if !strings.HasPrefix(authority, "/") {
			return "", "", errors.New("the URL must not have a host: a relative path follows the colon")
		}
		path = authority
	}
	if path, err = url.PathUnescape(path); err != nil {
		return "", "", errors.New("the path contains a percent sign that is not followed by two hexadecimal digits: write %25")
	}
	parameters, err := ParseParameters(rawQuery, "namespace")
	return path, cmp.Or(parameters["namespace"], DefaultNamespace), err
}

// ParseParameters returns the parameters of a driver's URL. It returns an error for a name that is not allowed, and for one
// that does not have exactly one value. Errors do not contain values.
func ParseParameters(rawQuery string, allowed ...string) (map[string]string, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, errors.New("the query of the URL must be ?NAME=VALUE&NAME=VALUE")
	}
	parameters := make(map[string]string, len(query))
	for name, values := range query {
		switch {
		case !slices.Contains(allowed, name):
			return nil, fmt.Errorf("unknown parameter %.32q: must be one of %s", name, strings.Join(allowed, ", "))
		case len(values) != 1 || values[0] == "":
			return nil, fmt.Errorf("parameter %q must have one value", name)
		}
		parameters[name] = values[0]
	}
	return parameters, nil
}
