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

package gateway

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/store"
)

// gatewayMetrics are the metrics of a gateway; its store has its own. All labels have a bounded set of values.
type gatewayMetrics struct {
	requests        *prometheus.CounterVec
	reloadFailures  *prometheus.CounterVec
	streams         prometheus.Gauge
	sockets         prometheus.GaugeFunc
	streamsEnded    *prometheus.CounterVec
	upstreamSeconds prometheus.Histogram
	inFlightBytes   prometheus.GaugeFunc
}

// newMetrics returns metrics that are 0, so that the first event of a kind counts as an increase.
func newMetrics(memory, sockets *sharedLimit) *gatewayMetrics {
	m := &gatewayMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "catena_gateway_requests_total",
			Help: "Number of requests, by route and HTTP status code; 499 if the client disconnected.",
		}, []string{"route", "code"}),
		reloadFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "catena_gateway_reload_failures_total",
			Help: "Number of failed reloads of a file; its last valid content stays in use.",
		}, []string{"file"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "catena_gateway_streams",
			Help: "Number of open streams.",
		}),
		sockets: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "catena_gateway_websockets",
			Help: "Number of open WebSocket connections. The limit is --max-websockets.",
		}, func() float64 { return float64(sockets.budget.Used()) }),
		streamsEnded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "catena_gateway_streams_ended_total",
			Help: "Number of ended streams, by response status; failed if the turn could not be saved, and other for a repeated response with an unknown status.",
		}, []string{"status"}),
		upstreamSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "catena_gateway_upstream_seconds",
			Help:    "Duration of requests to the engine until its response headers arrive, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 18), // 5 ms to 11 min
		}),
		inFlightBytes: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "catena_gateway_inflight_bytes",
			Help: "Number of bytes of memory that all requests in flight hold. The limit is --max-inflight-bytes.",
		}, func() float64 { return float64(memory.budget.Used()) }),
	}
	for _, status := range endStatuses {
		m.streamsEnded.WithLabelValues(status)
	}
	return m
}

// endStatuses are the statuses with which a response ends.
var endStatuses = []string{store.StatusCompleted, store.StatusIncomplete, store.StatusFailed, store.StatusCancelled}

// endOf returns the label for the status of a response. That of a stored turn can be any text.
func endOf(status string) string {
	if slices.Contains(endStatuses, status) {
		return status
	}
	return "other"
}

// commonStatuses are those that alerts look for.
var commonStatuses = []int{
	http.StatusOK, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

func (m *gatewayMetrics) initRoute(route string) {
	for _, status := range commonStatuses {
		m.requests.WithLabelValues(route, strconv.Itoa(status))
	}
}

func (m *gatewayMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.reloadFailures, m.streams, m.sockets, m.streamsEnded, m.upstreamSeconds, m.inFlightBytes}
}

// Describe implements prometheus.Collector.
func (m *gatewayMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *gatewayMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}
