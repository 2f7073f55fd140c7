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

package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// tenants is the set of all API keys. It can be reloaded at any time.
type tenants struct {
	keys atomic.Pointer[keys]
}

// keys has the namespaces of API keys by their hashes. Clients cannot choose hashes, so how long it takes to find one reveals nothing.
type keys map[[sha256.Size]byte]string

// parseTenants parses the tenants file: a YAML or JSON list of entries with a `namespace` and either the API key as `key`, or
// its hexadecimal SHA-256 as `keySHA256`. A namespace may have several keys. An empty list rejects all clients; an empty file
// is an error.
//
// Errors never contain any part of a key.
func parseTenants(content []byte) (keys, error) {
	var entries []struct {
		Namespace string `json:"namespace"`
		Key       string `json:"key"`
		KeySHA256 string `json:"keySHA256"`
	}
	if err := yaml.UnmarshalStrict(content, &entries); err != nil {
		return nil, errors.New("must be a list of {namespace, key or keySHA256}")
	}
	if entries == nil {
		return nil, errors.New("must not be empty")
	}
	namespaces := keys{}
	for i, entry := range entries {
		if err := validateNamespace(entry.Namespace); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		sum, err := keySum(entry.Key, entry.KeySHA256)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if other, ok := namespaces[sum]; ok && other != entry.Namespace {
			return nil, fmt.Errorf("entry %d: the key already belongs to the namespace %q", i, other)
		}
		namespaces[sum] = entry.Namespace
	}
	return namespaces, nil
}

func keySum(key, keySHA256 string) (sum [sha256.Size]byte, err error) {
	switch {
	case (key == "") == (keySHA256 == ""):
		return sum, errors.New("must have either a `key` or a `keySHA256`")
	case key != "":
		return sha256.Sum256([]byte(key)), nil
	}
	decoded, err := hex.DecodeString(keySHA256)
	if err != nil || len(decoded) != len(sum) {
		return sum, fmt.Errorf("`keySHA256` must be %d hexadecimal digits", 2*len(sum))
	}
	return [sha256.Size]byte(decoded), nil
}

func validateNamespace(namespace string) error {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return fmt.Errorf("invalid namespace %q: %s", namespace, strings.Join(problems, ", "))
	}
	return nil
}

func (t *tenants) load(content []byte) error {
	namespaces, err := parseTenants(content)
	if err != nil {
		return err
	}
	t.keys.Store(&namespaces)
	return nil
}

// namespaceOf returns the namespace of the key in an Authorization header.
func (t *tenants) namespaceOf(authorization string) (string, error) {
	scheme, key, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || key == "" {
		return "", invalidKey("You didn't provide an API key: send it in an Authorization header, as in Authorization: Bearer KEY.")
	}
	namespace, found := (*t.keys.Load())[sha256.Sum256([]byte(key))]
	if !found {
		return "", invalidKey("Incorrect API key provided.")
	}
	return namespace, nil
}

func invalidKey(message string) *apiError {
	return &apiError{status: http.StatusUnauthorized, kind: typeInvalidRequest, code: "invalid_api_key", message: message}
}
