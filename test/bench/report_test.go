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

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil"
)

// TestRendered: the page and the charts show the stored results.
func TestRendered(t *testing.T) {
	files, err := rendered(filepath.Join(testutil.Root(), "docs", "benchmarks"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is outdated: run make bench-report (-want +got):\n%s", path, diff)
		}
	}
}

// TestReportWith: the results of a run replace the older ones of the same experiments.
func TestReportWith(t *testing.T) {
	run := func(version string, experiments ...string) *results {
		r := &results{Machine: machine{Version: version}}
		for _, e := range experiments {
			r.Measurements = append(r.Measurements, &measurement{Experiment: e, Name: "of " + version})
		}
		return r
	}
	tests := map[string]struct {
		stored report
		run    *results
		want   report
	}{
		"first":    {nil, run("v1", "save"), report{run("v1", "save")}},
		"another":  {report{run("v1", "save")}, run("v2", "load"), report{run("v2", "load"), run("v1", "save")}},
		"the same": {report{run("v1", "save", "load")}, run("v2", "save"), report{run("v2", "save"), run("v1", "load")}},
		"all":      {report{run("v1", "save"), run("v2", "load")}, run("v3", "load", "save"), report{run("v3", "load", "save")}},
		"failed":   {report{run("v1", "save")}, run("v2"), report{run("v1", "save")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.stored.with(tc.run)); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMeasurement(t *testing.T) {
	tests := map[string]struct {
		measurement measurement
		want        []string
	}{
		"met": {
			measurement{Name: "resolve", Unit: "ms", Ours: series{Samples: []float64{1, 2, 3}}, Theirs: &series{"a GET", []float64{2, 4, 12}}, Goal: atMost(0.5)},
			[]string{"resolve", "2 ms", "4 ms, a GET", "0.50", "0.38 to 0.50", "≤ 0.5", "yes"},
		},
		"missed": {
			measurement{Name: "save", Unit: "turns/s", Ours: series{Samples: []float64{90}}, Theirs: &series{"a plain client", []float64{100}}, Goal: atLeast(0.95)},
			[]string{"save", "90 turns/s", "100 turns/s, a plain client", "0.90", "", "≥ 0.95", "NO"},
		},
		"figure": {
			measurement{Name: "resident", Unit: "MiB", Ours: series{Samples: []float64{123.4, 150}}, Goal: atMost(150)},
			[]string{"resident", "137 MiB", "", "", "130 to 143", "≤ 150", "yes"},
		},
		"no goal, other number of samples": {
			measurement{Name: "x", Unit: "ms", Ours: series{Samples: []float64{12.34}}, Theirs: &series{"y", []float64{1, 2}}},
			[]string{"x", "12.3 ms", "1.50 ms, y", "8.23", "", "", ""},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.measurement.cells()); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
		})
	}
}
