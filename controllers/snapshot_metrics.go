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

package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// sweepResult is the label of a sweep in its metric.
type sweepResult string

const (
	sweepCompleted sweepResult = "completed"
	// sweepHeldOff: the sweep deleted nothing, because this cluster took over the bucket only recently.
	sweepHeldOff sweepResult = "held_off"
	// sweepRefused: the sweep deleted nothing in some namespaces, because it would have deleted too many snapshots.
	sweepRefused sweepResult = "refused"
	sweepFailed  sweepResult = "failed"
)

var (
	sweeps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "catena_snapshot_sweeps_total",
		Help: "Number of sweeps by store and result. A sweep that was held off has marked snapshots and deleted none. One that was refused has deleted none of some namespaces.",
	}, []string{"store", "result"})
	lastSweep = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "catena_snapshot_last_sweep_timestamp_seconds",
		Help: "Unix time of the last sweep that compared the whole store with the sessions, by store. Only the leader reports it.",
	}, []string{"store"})
	sweepsHeldOff = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "catena_snapshot_sweeps_held_off",
		Help: "Whether the last sweep was held off because this cluster took over the bucket recently (1) or not (0), by store.",
	}, []string{"store"})
)

func init() { metrics.Registry.MustRegister(sweeps, lastSweep, sweepsHeldOff) }

// initSweepMetrics sets the metrics of a store to 0, so that the first sweep with a result counts as an increase.
func initSweepMetrics(store string) {
	for _, result := range []sweepResult{sweepCompleted, sweepHeldOff, sweepRefused, sweepFailed} {
		sweeps.WithLabelValues(store, string(result))
	}
	sweepsHeldOff.WithLabelValues(store)
}
