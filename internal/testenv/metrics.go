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

package testenv

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/catenatest"
)

// Sum adds up the series of an operator's metric that have a label, written as name="value". All series have the empty label.
func Sum(ctx context.Context, from *catenatest.Operator, metric, label string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.MetricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	total := 0.0
	for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
		line := scanner.Text()
		if name := line[:max(0, strings.IndexAny(line, "{ "))]; name != metric || !strings.Contains(line, label) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("unable to parse %q: %w", line, err)
		}
		total += value
	}
	return total, nil
}

// Idle returns nil if an operator's queues of sessions and of conversations are empty. An operator that is ready has queued the sessions that
// need a write. Those that wait to be reconciled again later are not in the queue.
func Idle(ctx context.Context, operator *catenatest.Operator) error {
	for _, controller := range []string{"responsesession", "conversation"} {
		label := fmt.Sprintf("controller=%q", controller)
		total, err := Sum(ctx, operator, "controller_runtime_reconcile_total", label)
		if err != nil {
			return err
		}
		queued, err := Sum(ctx, operator, "workqueue_adds_total", label)
		if err != nil {
			return err
		}
		if queued != total {
			return fmt.Errorf("%.0f of %.0f objects of the controller %s are reconciled", total, queued, controller)
		}
	}
	return nil
}
