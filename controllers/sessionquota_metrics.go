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
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

var quotaUsedDesc = prometheus.NewDesc("catena_session_quota_used_ratio",
	"Part of the limit of its SessionQuota that a namespace stores: from 1 on, saves are refused. Only the leader reports it, for the "+
		"fullest namespaces, as many as have catena_stored_bytes.", []string{"namespace"}, nil)

// quotaLimits are the limits of the SessionQuotas, in bytes.
type quotaLimits struct {
	mu    sync.Mutex
	bytes map[types.NamespacedName]int64
}

// set records the limit of a quota, or with nil that it has none or is gone.
func (l *quotaLimits) set(name types.NamespacedName, quota *v1alpha1.SessionQuota) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if quota == nil || quota.Spec.Hard.Bytes == nil {
		delete(l.bytes, name)
		return
	}
	if l.bytes == nil {
		l.bytes = map[types.NamespacedName]int64{}
	}
	l.bytes[name] = quota.Spec.Hard.Bytes.Value()
}

// smallest returns the smallest limit of each namespace.
func (l *quotaLimits) smallest() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := map[string]int64{}
	for name, limit := range l.bytes {
		if known, found := limits[name.Namespace]; !found || limit < known {
			limits[name.Namespace] = limit
		}
	}
	return limits
}

var _ prometheus.Collector = &SessionQuotaReconciler{}

// Describe implements prometheus.Collector.
func (*SessionQuotaReconciler) Describe(descs chan<- *prometheus.Desc) { descs <- quotaUsedDesc }

// Collect implements prometheus.Collector. No metric is exported until everything has been counted once.
func (r *SessionQuotaReconciler) Collect(metrics chan<- prometheus.Metric) {
	if !r.Usage.HasSynced() {
		return
	}
	used := map[string]float64{}
	for namespace, limit := range r.limits.smallest() {
		used[namespace] = 1 // a limit of 0 is always reached
		if limit > 0 {
			used[namespace] = float64(r.Usage.stored(namespace).bytes()) / float64(limit)
		}
	}
	fullest := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b)) })
	for _, namespace := range fullest[:min(r.Usage.MaxNamespaces, len(fullest))] {
		metrics <- prometheus.MustNewConstMetric(quotaUsedDesc, prometheus.GaugeValue, used[namespace], namespace)
	}
}
