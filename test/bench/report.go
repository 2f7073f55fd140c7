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
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// results are those of a run.
type results struct {
	Machine      machine        `json:"machine"`
	Measurements []*measurement `json:"measurements"`
}

// measurement is a row of the report: samples of Catena and, usually, those of a comparison from the same rounds.
type measurement struct {
	Experiment string `json:"experiment"`
	Name       string `json:"name"`
	// Unit is the unit of the samples.
	Unit   string  `json:"unit"`
	Ours   series  `json:"ours"`
	Theirs *series `json:"theirs,omitempty"`
	Goal   *goal   `json:"goal,omitempty"`
}

// goal limits the ratio of the medians, ours to theirs, or our median if there is no comparison.
type goal struct {
	Limit float64 `json:"limit"`
	// AtLeast is set if the limit is the least value and not the largest.
	AtLeast bool `json:"atLeast,omitempty"`
}

func atMost(limit float64) *goal  { return &goal{Limit: limit} }
func atLeast(limit float64) *goal { return &goal{Limit: limit, AtLeast: true} }

func (g *goal) met(value float64) bool {
	if g.AtLeast {
		return value >= g.Limit
	}
	return value <= g.Limit
}

func (g *goal) String() string {
	if g.AtLeast {
		return fmt.Sprintf("≥ %.4g", g.Limit)
	}
	return fmt.Sprintf("≤ %.4g", g.Limit)
}

// series are the samples of one case.
type series struct {
	Name    string    `json:"name"`
	Samples []float64 `json:"samples"`
}

func (s *series) add(value float64)          { s.Samples = append(s.Samples, value) }
func (s *series) addTime(took time.Duration) { s.add(float64(took) / float64(time.Millisecond)) }

func (s *series) median() float64 { return quantile(s.Samples, 0.5) }

// quantile returns the q-quantile of the samples, with linear interpolation between two of them. Without samples, it returns 0.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	position := q * float64(len(sorted)-1)
	i := int(position)
	next := sorted[min(i+1, len(sorted)-1)]
	return sorted[i] + (position-float64(i))*(next-sorted[i])
}

// value is what the goal limits.
func (m *measurement) value() float64 {
	if m.Theirs == nil {
		return m.Ours.median()
	}
	return m.Ours.median() / m.Theirs.median()
}

// spread returns the quartiles of the ratios of the rounds, or of the samples if there is no comparison.
func (m *measurement) spread() string {
	values := slices.Clone(m.Ours.Samples)
	if m.Theirs != nil {
		if len(values) != len(m.Theirs.Samples) {
			return ""
		}
		for i := range values {
			values[i] /= m.Theirs.Samples[i]
		}
	}
	if len(values) < 2 {
		return ""
	}
	return fmt.Sprintf("%s to %s", digits(quantile(values, 0.25)), digits(quantile(values, 0.75)))
}

// columns are the names of the cells.
var columns = []string{"measurement", "Catena", "comparison", "ratio", "quartiles", "goal", "met"}

func (m *measurement) cells() []string {
	cells := []string{m.Name, digits(m.Ours.median()) + " " + m.Unit, "", "", m.spread(), "", ""}
	if m.Theirs != nil {
		cells[2], cells[3] = fmt.Sprintf("%s %s, %s", digits(m.Theirs.median()), m.Unit, m.Theirs.Name), digits(m.value())
	}
	if m.Goal != nil {
		cells[5], cells[6] = m.Goal.String(), "yes"
		if !m.Goal.met(m.value()) {
			cells[6] = "NO"
		}
	}
	return cells
}

// digits formats a number with the precision that a measurement has.
func digits(value float64) string {
	switch {
	case value >= 100 || value == float64(int64(value)):
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// print writes all measurements as one table and, unless the path is empty, with their samples to a file.
func (r *results) print(w io.Writer, path string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells []string) { _, _ = fmt.Fprintln(table, strings.Join(cells, "\t")) } // Flush returns the error
	row(columns)
	for _, m := range r.Measurements {
		row(m.cells())
	}
	if err := table.Flush(); err != nil || path == "" {
		return err
	}
	return writeJSON(path, r)
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("unable to read %s: %w", path, err)
	}
	return nil
}

// interleave runs all cases in each round, so that other load on the machine affects them equally. Their order is random, so that none always
// follows the same one: after a write, the operator and the kube-apiserver are still busy with the verdict.
func interleave(rounds int, cases ...func() error) error {
	for range rounds {
		for _, i := range rand.Perm(len(cases)) {
			if err := cases[i](); err != nil {
				return err
			}
		}
	}
	return nil
}

func timed(s *series, run func() error) func() error {
	return func() error {
		start := time.Now()
		if err := run(); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		s.addTime(time.Since(start))
		return nil
	}
}
