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
func (o ResolveOptions) Query() url.Values {
	query := url.Values{}
	for name, field := range optionFields(&o) {
		if !field.IsZero() {
			query.Set(name, fmt.Sprint(reflect.Indirect(field)))
		}
	}
	return query
}

// ParseQuery returns the options in a query. It returns an *OptionError for an unknown parameter, a repeated parameter, or a
// value that is not allowed.
func ParseQuery(query url.Values) (ResolveOptions, error) {
	var options ResolveOptions
	fields := optionFields(&options)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		value := query.Get(name)
		i := slices.IndexFunc(optionValues, func(o option) bool { return o.name == name })
		switch {
		case i < 0:
			return options, &OptionError{Name: name, Problem: "is unknown: must be one of " + optionNames()}
		case len(query[name]) != 1:
			return options, &OptionError{Name: name, Problem: fmt.Sprintf("is given %d times: must be given once", len(query[name]))}
		case optionValues[i].allowed != nil && !optionValues[i].allowed(value):
			return options, NewOptionError(name, value, optionValues[i].description)
		}
		setOption(fields[name], value)
	}
	if options.After != "" && options.Limit == 0 {
		return options, &OptionError{Name: "after", Problem: `needs "limit": without it, the result is the whole history`}
	}
	return options, nil
}

func optionNames() string {
	names := make([]string, len(optionValues))
	for i, o := range optionValues {
		names[i] = o.name
	}
	return strings.Join(names, ", ")
}

// optionFields returns the fields of the options that have a JSON name, by that name.
func optionFields(o *ResolveOptions) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	value := reflect.ValueOf(o).Elem()
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
	case reflect.Int:
		n, _ := strconv.Atoi(value) // an allowed value is a number
		field.SetInt(int64(n))
	default:
		field.SetString(value)
	}
}
