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

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/store/driver"
)

// commonParameters are the query parameters that Kubernetes clients add to any request. They are read elsewhere or, like
// pretty, have no effect.
var commonParameters = []string{"pretty", "timeout", "includeObject"}

func addConversions(scheme *runtime.Scheme) error {
	err := scheme.AddConversionFunc((*url.Values)(nil), (*InputItemsOptions)(nil), func(a, b any, _ conversion.Scope) error {
		return b.(*InputItemsOptions).FromQuery(*a.(*url.Values))
	})
	if err != nil {
		return err
	}
	err = scheme.AddConversionFunc((*url.Values)(nil), (*ConversationTurnsOptions)(nil), func(a, b any, _ conversion.Scope) error {
		return b.(*ConversationTurnsOptions).FromQuery(*a.(*url.Values))
	})
	if err != nil {
		return err
	}
	return scheme.AddConversionFunc((*url.Values)(nil), (*ConversationListsOptions)(nil), func(a, b any, _ conversion.Scope) error {
		return b.(*ConversationListsOptions).FromQuery(*a.(*url.Values))
	})
}

// FromQuery sets the options from a query. It returns an error that names the parameter, its value and what is allowed for
// an unknown parameter, one that is given more than once, and a value that is not allowed. The operator's limit of maxDepth
// and the cursor are checked later.
func (o *InputItemsOptions) FromQuery(query url.Values) error {
	options, err := driver.ParseQuery(withoutCommon(query))
	if err := checkParameters(options.Version, err); err != nil {
		return err
	}
	*o = InputItemsOptions{TypeMeta: o.TypeMeta}
	return convert(options, o)
}

// FromQuery sets the options from a query. Its errors are those of InputItemsOptions.FromQuery. The cursor is checked later.
func (o *ConversationTurnsOptions) FromQuery(query url.Values) error {
	options, err := driver.ParseListQuery(withoutCommon(query))
	if err := checkParameters(options.Version, err); err != nil {
		return err
	}
	*o = ConversationTurnsOptions{TypeMeta: o.TypeMeta}
	return convert(options, o)
}

// FromQuery sets the options from a query. Its errors are those of InputItemsOptions.FromQuery. The cursor is checked later.
func (o *ConversationListsOptions) FromQuery(query url.Values) error {
	query = withoutCommon(query)
	if states := query["state"]; len(states) > 0 { // client-go repeats the parameter
		query.Set("state", strings.Join(states, ","))
	}
	options, err := driver.ParseConversationListQuery(query)
	if err := checkParameters(options.Version, err); err != nil {
		return err
	}
	*o = ConversationListsOptions{TypeMeta: o.TypeMeta}
	return convert(options, o)
}

// withoutCommon returns a query without the common parameters.
func withoutCommon(query url.Values) url.Values {
	query = maps.Clone(query)
	for _, name := range commonParameters {
		delete(query, name)
	}
	return query
}

// checkParameters returns an error if the query could not be parsed, or its resource version is not one.
func checkParameters(resourceVersion string, err error) error {
	if err == nil {
		_, err = ParseResourceVersion(resourceVersion)
	}
	if err != nil {
		return fmt.Errorf("query parameter %w", err)
	}
	return nil
}

// MinResourceVersion returns the resource version of the options as a number, or 0 if they have none.
func (o *InputItemsOptions) MinResourceVersion() (uint64, error) {
	return ParseResourceVersion(o.ResourceVersion)
}

// ParseResourceVersion returns the value of the parameter resourceVersion as a number, or 0 if it is empty.
func ParseResourceVersion(version string) (uint64, error) {
	if version == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, driver.NewOptionError("resourceVersion", version, "a resource version, which is a whole number")
	}
	return n, nil
}

// ResolveOptions returns the options as the type of package store. Its Version is only the resource version.
func (o *InputItemsOptions) ResolveOptions() (driver.ResolveOptions, error) {
	var options driver.ResolveOptions
	err := convert(o, &options)
	return options, err
}

// ListOptions returns the options as the type of package store. Its Version is only the resource version.
func (o *ConversationTurnsOptions) ListOptions() (driver.ListOptions, error) {
	var options driver.ListOptions
	err := convert(o, &options)
	return options, err
}

// ListOptions returns the options as the type of package store. Its Version is only the resource version.
func (o *ConversationListsOptions) ListOptions() (driver.ConversationListOptions, error) {
	var options driver.ConversationListOptions
	err := convert(o, &options)
	return options, err
}

// convert sets a type of options from another. The JSON names of their fields are the same.
func convert(from, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("unable to convert options: %w", err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("unable to convert options: %w", err)
	}
	return nil
}
