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

package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/store/driver"
)

// operations are the values of the label "operation". After ping, they are those of Conversations.
var operations = []string{
	"get", "save", "resolve", "list", "delete", "find_item", "ping",
	"append_conversation", "append_items_conversation", "archive_conversation", "confirm_conversation", "count_turns_conversation",
	"create_conversation", "delete_conversation", "fork_conversation", "get_conversation", "hide_item_conversation", "list_conversations",
	"list_turns_conversation", "load_conversation", "load_recent_conversation", "patch_conversation", "reserve_conversation",
	"rollback_conversation", "save_summary_conversation", "summaries_conversation", "unarchive_conversation",
}

func newMetrics() *prometheus.HistogramVec {
	metrics := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "catena_store_operation_seconds",
		Help: "Duration of store operations in seconds, including retries, by operation (" + strings.Join(operations, ", ") + ") and code: " +
			"ok, the code of the error, canceled, deadline_exceeded, or other.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10), // 0.1 ms to 26 s
	}, []string{"operation", "code"})
	for _, operation := range operations {
		for _, code := range []string{driver.ResultOK, string(driver.CodeUnreachable)} {
			metrics.WithLabelValues(operation, code) // so that the first outage counts as an increase
		}
	}
	return metrics
}

// codeOf returns the metric label for a result. The set of values is bounded: an unknown code of another driver becomes
// "other".
func codeOf(err error) string {
	e, isError := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return driver.ResultOK
	case errors.Is(err, context.Canceled):
		return driver.ResultCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	case isError && slices.Contains(driver.Codes(), e.Code):
		return string(e.Code)
	}
	return "other"
}
