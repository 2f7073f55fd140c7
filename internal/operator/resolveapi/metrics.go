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

package resolveapi

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store/driver"
)

var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "catena_resolve_requests_total",
		Help: "Number of requests for the history of a turn by result: ok, not_modified, the code of the chain's error, the reason of any other error, or canceled.",
	}, []string{"code"})

	durationSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "catena_resolve_duration_seconds",
		Help:    "Duration of resolving the history of a turn in seconds, without its transfer.",
		Buckets: prometheus.ExponentialBuckets(0.00025, 2, 17), // 0.25 ms to 16 s
	})

	itemsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "catena_resolve_items_total",
		Help: "Number of input items in responses, including instructions.",
	})

	bytesTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "catena_resolve_bytes_total",
		Help: "Number of bytes in JSON responses. Tables are not counted.",
	})
)

func init() {
	metrics.Registry.MustRegister(requestsTotal, durationSeconds, itemsTotal, bytesTotal)
	for _, code := range resultCodes() {
		requestsTotal.WithLabelValues(code) // so that the first request with it counts as an increase
	}
}

// resultNotModified is the code of a request that is answered with 304.
const resultNotModified = "not_modified"

// resultCodes returns the values of the label code.
func resultCodes() []string {
	codes := []string{driver.ResultOK, resultNotModified, driver.ResultCanceled}
	for rule := range chain.Reasons() {
		if rule.Code() != "" {
			codes = append(codes, string(rule.Code()))
		}
	}
	for _, reason := range []metav1.StatusReason{
		metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTimeout,
	} {
		codes = append(codes, string(reason))
	}
	return codes
}
