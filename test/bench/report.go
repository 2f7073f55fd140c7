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
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// comparison is one line of the report: a measurement of Catena and its baseline, interleaved in one run.
type comparison struct {
	name string
	// unit is the unit of the samples. If moreIsBetter, the ratio is ours to theirs, otherwise theirs to ours, so that a
	// larger ratio is always better.
	unit         string
	moreIsBetter bool
	ours, theirs series
	// target is the minimum ratio that the project promises, or zero.
	target float64
}

type series struct {
	name    string
	samples []float64
}

func (s *series) add(value float64)          { s.samples = append(s.samples, value) }
func (s *series) addTime(took time.Duration) { s.add(float64(took) / float64(time.Millisecond)) }

func (s *series) median() float64 {
	sorted := slices.Sorted(slices.Values(s.samples))
	if len(sorted) == 0 {
		return 0
	}
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (s *series) String() string {
	text := fmt.Sprintf("%s %.4g", s.name, s.median())
	if len(s.samples) > 1 {
		text += fmt.Sprintf(" [%.4g to %.4g]", slices.Min(s.samples), slices.Max(s.samples))
	}
	return text
}

func (c *comparison) ratio() float64 {
	if c.moreIsBetter {
		return c.ours.median() / c.theirs.median()
	}
	return c.theirs.median() / c.ours.median()
}

// print writes the medians with the minimum and maximum, the ratio, and whether it meets the target.
func (c *comparison) print(w io.Writer) {
	fmt.Fprintf(w, "%s (%s)\n  %s\n  %s\n  ratio %.2f", c.name, c.unit, &c.ours, &c.theirs, c.ratio())
	if c.target > 0 {
		result := "met"
		if c.ratio() < c.target {
			result = "MISSED"
		}
		fmt.Fprintf(w, ", target %.2f: %s", c.target, result)
	}
	fmt.Fprintln(w)
}

func (c *comparison) printRaw(w io.Writer) {
	for _, s := range []series{c.ours, c.theirs} {
		values := make([]string, len(s.samples))
		for i, sample := range s.samples {
			values[i] = fmt.Sprintf("%.4g", sample)
		}
		fmt.Fprintf(w, "  %s, %s: %s\n", c.name, s.name, strings.Join(values, " "))
	}
}

// figure is a measurement with a limit instead of a baseline.
type figure struct {
	name, unit   string
	value, limit float64
}

func (f *figure) print(w io.Writer) {
	result := "met"
	if f.value > f.limit {
		result = "MISSED"
	}
	fmt.Fprintf(w, "%s (%s)\n  %.4g, limit %.4g: %s\n", f.name, f.unit, f.value, f.limit, result)
}

// interleave runs all cases in each round, so that other load on the machine affects them equally.
func interleave(rounds int, cases ...func() error) error {
	for range rounds {
		for _, run := range cases {
			if err := run(); err != nil {
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
			return fmt.Errorf("%s: %w", s.name, err)
		}
		s.addTime(time.Since(start))
		return nil
	}
}
