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

package monitoring_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/golden"
)

// checkMetrics compares the metrics that were scraped with their tables in docs/operations.md.
func checkMetrics(t *testing.T, p *prometheus) {
	t.Helper()
	for section, job := range map[string]string{"operator metrics": "catena-resolve", "gateway metrics": "catena-system/catena-gateway"} {
		var table string
		testutil.Eventually(t, func(ctx context.Context) (err error) {
			table, err = metricsTable(ctx, p, job)
			return err
		})
		golden.Section(t, "docs/operations.md", section, table)
	}
}

type metadata struct{ Metric, Type, Help string }

// metricsTable returns the table of Catena's own metrics of a job, with the labels that they have besides those of the target.
func metricsTable(ctx context.Context, p *prometheus, job string) (string, error) {
	var all []metadata
	if err := p.get(ctx, "targets/metadata?"+url.Values{"match_target": {`{job="` + job + `"}`}}.Encode(), &all); err != nil {
		return "", err
	}
	result, err := p.query(ctx, `{job="`+job+`", __name__=~"catena_.*"}`)
	if err != nil {
		return "", err
	}
	labels := map[string]map[string]bool{}
	for _, series := range result {
		name := series.Metric["__name__"]
		if labels[name] == nil {
			labels[name] = map[string]bool{}
		}
		for label, value := range series.Metric {
			if label != "namespace" || value != operatorNamespace {
				labels[name][label] = true
			}
		}
	}
	slices.SortFunc(all, func(a, b metadata) int { return cmp.Compare(a.Metric, b.Metric) })
	var table strings.Builder
	table.WriteString("| metric | type | labels | |\n|---|---|---|---|\n")
	for _, m := range all {
		if !strings.HasPrefix(m.Metric, "catena_") {
			continue
		}
		series := m.Metric
		if m.Type == "histogram" {
			series += "_count"
		}
		if labels[series] == nil {
			return "", fmt.Errorf("%s has no series", m.Metric)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.Metric, m.Type, labelList(labels[series]), m.Help)
	}
	return table.String(), nil
}

func labelList(labels map[string]bool) string {
	for _, ofTarget := range []string{"__name__", "job", "instance"} {
		delete(labels, ofTarget)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		names = append(names, "`"+name+"`")
	}
	return strings.Join(names, ", ")
}
