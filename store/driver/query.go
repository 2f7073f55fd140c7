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
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Query returns the options that are set as query parameters of the resolve API.
func (o ResolveOptions) Query() url.Values { return queryOf(&o) }

// Query returns the options that are set as query parameters of the resolve API.
func (o ListOptions) Query() url.Values { return queryOf(&o) }

// ParseQuery returns the options in a query. It returns an *OptionError for an unknown parameter, a repeated parameter, or a
// value that is not allowed.
func ParseQuery(query url.Values) (ResolveOptions, error) {
	var options ResolveOptions
	if err := parseQuery(query, &options, optionValues); err != nil {
		return options, err
	}
	if options.After != "" && options.Limit == 0 {
		return options, &OptionError{Name: "after", Problem: `needs "limit": without it, the result is the whole history`}
	}
	return options, nil
}

// ParseListQuery returns the options in a query. Its errors are those of ParseQuery.
func ParseListQuery(query url.Values) (ListOptions, error) {
	var options ListOptions
	err := parseQuery(query, &options, listOptionValues)
	return options, err
}

// queryOf returns the fields of a struct of options that are set.
func queryOf(options any) url.Values {
	query := url.Values{}
	for name, field := range optionFields(options) {
		if list, ok := reflect.TypeAssert[[]string](field); ok && len(list) > 0 {
			query.Set(name, strings.Join(list, ","))
		} else if !field.IsZero() {
			query.Set(name, fmt.Sprint(reflect.Indirect(field)))
		}
	}
	return query
}

// parseQuery sets a struct of options from a query, given the allowed values.
func parseQuery(query url.Values, options any, allowed []option) error {
	fields := optionFields(options)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		value := query.Get(name)
		i := slices.IndexFunc(allowed, func(o option) bool { return o.name == name })
		switch {
		case i < 0:
			return &OptionError{Name: name, Problem: "is unknown: must be one of " + optionNames(allowed)}
		case len(query[name]) != 1:
			return &OptionError{Name: name, Problem: fmt.Sprintf("is given %d times: must be given once", len(query[name]))}
		case allowed[i].allowed != nil && !allowed[i].allowed(value):
			return NewOptionError(name, value, allowed[i].description)
		}
		setOption(fields[name], value)
	}
	return nil
}

func optionNames(options []option) string {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = o.name
	}
	return strings.Join(names, ", ")
}

// optionFields returns the fields of a struct of options that have a JSON name, by that name.
func optionFields(options any) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	value := reflect.ValueOf(options).Elem()
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if name != "-" {
			fields[name] = value.Field(i)
		}
	}
	return fields
}

// setOption sets a field to an allowed value.
func setOption(field reflect.Value, value string) {
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		setOption(field.Elem(), value)
	case reflect.Bool:
		field.SetBool(value == "true")
	case reflect.Slice:
		field.Set(reflect.ValueOf(strings.Split(value, ",")))
	case reflect.Int:
		n, _ := strconv.Atoi(value) // an allowed value is a number
		field.SetInt(int64(n))
	default:
		field.SetString(value)
	}
}
