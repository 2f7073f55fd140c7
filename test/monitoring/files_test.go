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

// Package monitoring_test tests config/components/monitoring: the alert rules with promtool's library, and the queries of the dashboard
// and of the alerts with a real Prometheus that scrapes an operator and a gateway.
package monitoring_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/internal/testutil"
)

// component returns the path of a file of the component.
func component(name string) string {
	return filepath.Join(testutil.Root(), "config", "components", "monitoring", name)
}

// read reads a file of the component into a value, which must have all its fields.
func read[T any](t *testing.T, name string) (value T) {
	t.Helper()
	content, err := os.ReadFile(component(name))
	if err == nil {
		err = yaml.UnmarshalStrict(content, &value)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// writeRules writes the rules as a file for Prometheus, and returns its path.
func writeRules(t *testing.T) string {
	t.Helper()
	spec, err := json.Marshal(read[monitoringv1.PrometheusRule](t, "rules.yaml").Spec) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	return write(t, t.TempDir(), "rules.yaml", spec)
}

// alerts returns the rules.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(writeRules(t), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var rules []rulefmt.Rule
	for _, group := range groups.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// dashboardQueries returns the queries of the dashboard by the titles of their panels, with Grafana's variables replaced.
func dashboardQueries(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	content, err := os.ReadFile(component("dashboard.json"))
	if err == nil {
		err = json.Unmarshal(content, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string][]string{}
	for _, panel := range dashboard.Panels {
		if panel.Type == "row" {
			continue
		}
		if len(queries[panel.Title]) > 0 || len(panel.Targets) == 0 {
			t.Errorf("panel %q has no query, or another panel has its title", panel.Title)
		}
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	return queries
}

// program returns the path of a program of Debian's package prometheus. Without it, the test is skipped, except in CI.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skipf("%v: install Debian's package prometheus", err)
	return ""
}
