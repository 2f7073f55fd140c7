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
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// ownParameters are the query parameters of a request for InputItems.
var ownParameters = []string{"maxDepth", "includeIncomplete", "instructions", "limit", "after", "order", "resourceVersion"}

// commonParameters are those that Kubernetes clients add to any request. They are read elsewhere or, as pretty is,
// without effect.
var commonParameters = []string{"pretty", "timeout", "includeObject"}

func addConversions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*InputItemsOptions)(nil), func(a, b any, _ conversion.Scope) error {
		return b.(*InputItemsOptions).FromQuery(*a.(*url.Values))
	})
}

// FromQuery sets the options to those of a query. It returns an error for an unknown parameter, one that is given more
// than once, and a value that is not allowed, and says which and what is. The operator's limit of maxDepth, and
// whether the cursor is one of this history, are checked later.
func (o *InputItemsOptions) FromQuery(query url.Values) error {
	*o = InputItemsOptions{TypeMeta: o.TypeMeta}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case slices.Contains(commonParameters, name):
			continue
		case !slices.Contains(ownParameters, name):
			return fmt.Errorf("unknown query parameter %q: must be one of %s", name, strings.Join(ownParameters, ", "))
		case len(query[name]) != 1:
			return fmt.Errorf("query parameter %q is given %d times: must be given once", name, len(query[name]))
		}
		if allowed := o.set(name, query[name][0]); allowed != "" {
			return fmt.Errorf("query parameter %q is %.100q: must be %s", name, query[name][0], allowed)
		}
	}
	if o.After != "" && o.Limit == 0 {
		return errors.New(`query parameter "after" needs "limit": without it, the answer is the whole history`)
	}
	return nil
}

// set sets an option and returns, where the value is not allowed, what is.
func (o *InputItemsOptions) set(name, value string) (allowed string) {
	switch name {
	case "maxDepth":
		depth, err := strconv.ParseInt(value, 10, 32)
		if err != nil || depth < 0 {
			return "a whole number from 0 to the operator's limit"
		}
		o.MaxDepth = new(int32(depth))
	case "includeIncomplete":
		if value != "true" && value != "false" {
			return "true or false"
		}
		o.IncludeIncomplete = value == "true"
	case "instructions":
		o.Instructions = value
		return oneOf(value, InstructionsAll, InstructionsLast, InstructionsOmit)
	case "limit":
		limit, err := strconv.ParseInt(value, 10, 32)
		if err != nil || limit < 1 || limit > MaxLimit {
			return fmt.Sprintf("a whole number from 1 to %d", MaxLimit)
		}
		o.Limit = int32(limit)
	case "after":
		o.After = value
	case "order":
		o.Order = value
		return oneOf(value, OrderAscending, OrderDescending)
	case "resourceVersion":
		if _, err := strconv.ParseUint(value, 10, 64); err != nil && value != "" {
			return "a resource version, which is a whole number"
		}
		o.ResourceVersion = value
	}
	return ""
}

func oneOf(value string, allowed ...string) string {
	if slices.Contains(allowed, value) {
		return ""
	}
	return "one of " + strings.Join(allowed, ", ")
}
