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

package store_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/memory"
)

// TestMetricOperations: the series of every operation begin at 0, so that its first failure counts as an increase, and the help text names it.
func TestMetricOperations(t *testing.T) {
	s := memory.New(memory.Options{})
	var declared []string
	help, counts := operationCounts(t, s)
	for operation, count := range counts {
		declared = append(declared, operation)
		if count != 0 {
			t.Errorf("%s has been observed %d times before the first call", operation, count)
		}
	}
	slices.Sort(declared)
	callAll(t, s)
	callAll(t, s.Conversations())
	_, counts = operationCounts(t, s)
	maps.DeleteFunc(counts, func(_ string, count uint64) bool { return count == 0 })
	observed := slices.Sorted(maps.Keys(counts))
	if diff := cmp.Diff(declared, observed); diff != "" {
		t.Errorf("operations (-declared +observed):\n%s", diff)
	}
	_, list, _ := strings.Cut(help, "by operation (")
	list, _, _ = strings.Cut(list, ")")
	if diff := cmp.Diff(observed, slices.Sorted(slices.Values(strings.Split(list, ", ")))); diff != "" {
		t.Errorf("operations (-observed +in the help text):\n%s", diff)
	}
}

// callAll calls every method of a store that takes a context, with zero values: that most of these are refused is observed, too.
func callAll(t *testing.T, receiver any) {
	t.Helper()
	of := reflect.TypeFor[context.Context]()
	for _, method := range reflect.ValueOf(receiver).Methods() {
		if method.Type().NumIn() == 0 || method.Type().In(0) != of {
			continue
		}
		arguments := []reflect.Value{reflect.ValueOf(t.Context())}
		for i := 1; i < method.Type().NumIn(); i++ {
			if argument := method.Type().In(i); argument.Kind() == reflect.Pointer {
				arguments = append(arguments, reflect.New(argument.Elem()))
			} else {
				arguments = append(arguments, reflect.Zero(argument))
			}
		}
		method.Call(arguments)
	}
}

// operationCounts returns the help text of the metric of a store, and the number of calls by operation.
func operationCounts(t *testing.T, s *store.Store) (help string, counts map[string]uint64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	counts = map[string]uint64{}
	for _, metric := range families[0].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "operation" {
				counts[label.GetValue()] += metric.GetHistogram().GetSampleCount()
			}
		}
	}
	return families[0].GetHelp(), counts
}
