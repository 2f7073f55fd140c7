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
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/internal/testutil"
)

const runbook = "https://github.com/catena-dev/catena/blob/main/docs/operations.md#"

// TestRules: each rule is a valid alert that says what to do.
func TestRules(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(testutil.Root(), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{} // by anchor
	for line := range strings.Lines(string(document)) {
		if title, isSection := strings.CutPrefix(line, "### Catena"); isSection {
			sections[strings.ToLower("Catena"+strings.TrimSpace(title))] = true
		}
	}
	for _, rule := range alerts(t) {
		anchor := strings.ToLower(rule.Alert)
		if got := rule.Annotations["runbook_url"]; got != runbook+anchor {
			t.Errorf("%s has the runbook %q, want %q", rule.Alert, got, runbook+anchor)
		}
		if !sections[anchor] {
			t.Errorf("docs/operations.md has no section ### %s, or two alerts share it", rule.Alert)
		}
		delete(sections, anchor)
		for _, annotation := range []string{"summary", "description"} {
			if !strings.HasSuffix(rule.Annotations[annotation], ".") {
				t.Errorf("the %s of %s is no sentence: %q", annotation, rule.Alert, rule.Annotations[annotation])
			}
		}
		switch rule.Labels["severity"] {
		case "critical", "warning", "info":
		default:
			t.Errorf("%s has the severity %q", rule.Alert, rule.Labels["severity"])
		}
	}
	for anchor := range sections {
		t.Errorf("docs/operations.md has a section for %s, which is no alert", anchor)
	}
}

// TestGateway: Prometheus scrapes the port that the gateways' Pods name.
func TestGateway(t *testing.T) {
	monitor := read[monitoringv1.PodMonitor](t, "gateway.yaml")
	if got := *monitor.Spec.PodMetricsEndpoints[0].Port; got != "metrics" {
		t.Errorf("the port is %s", got)
	}
}

// TestAlerts runs promtool's tests of rules: each alert fires for what it is about, and not otherwise.
func TestAlerts(t *testing.T) {
	promtool := program(t, "promtool")
	tests := map[string]any{}
	content, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	if err == nil {
		err = yaml.Unmarshal(content, &tests)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range alerts(t) {
		if !strings.Contains(string(content), `alertname="`+rule.Alert+`"`) {
			t.Errorf("testdata/alerts.yaml has no test for %s", rule.Alert)
		}
	}
	tests["rule_files"] = []string{writeRules(t)}
	written, err := json.Marshal(tests)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
