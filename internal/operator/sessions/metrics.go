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

package sessions

import "github.com/prometheus/client_golang/prometheus"

var sessionsDesc = prometheus.NewDesc("catena_sessions",
	"Number of ResponseSessions by the reason of their ChainValid condition. Every replica reports all of them.",
	[]string{"reason"}, nil)

var _ prometheus.Collector = &View{}

// Describe implements prometheus.Collector.
func (v *View) Describe(descs chan<- *prometheus.Desc) {
	descs <- sessionsDesc
	v.age.Describe(descs)
}

// Collect implements prometheus.Collector.
func (v *View) Collect(metrics chan<- prometheus.Metric) {
	for reason, count := range v.Counts() {
		metrics <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(count), reason)
	}
	v.age.Collect(metrics)
}
