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

	"github.com/prometheus/client_golang/prometheus"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/operator/sizes"
)

// UsageCounter counts the storage that each namespace uses. It also collects metrics about it, which have values once both
// views have synced: only on the leader, because only the leader watches chunks. It is safe for concurrent use.
type UsageCounter struct {
	Sessions      *sessions.View
	Chunks        *sizes.View
	Summaries     *sizes.View
	Conversations *conversations.View
	// MaxNamespaces is the number of namespaces that have metrics of their own: those that store the most bytes.
	MaxNamespaces int
}

// HasSynced reports whether everything has been counted at least once.
func (u *UsageCounter) HasSynced() bool {
	return u.Sessions.HasSynced() && u.Chunks.HasSynced() && u.Summaries.HasSynced() && u.Conversations.HasSynced()
}

// Of returns the usage of a namespace, with the bytes rounded up to KiB.
func (u *UsageCounter) Of(namespace string) v1alpha1.SessionUsage {
	stored := u.stored(namespace)
	return v1alpha1.SessionUsage{
		Bytes: usageBytes(stored.bytes()), Sessions: int64(stored.sessions.Sessions), SnapshotChunks: int64(stored.chunks.Objects),
	}
}

func (u *UsageCounter) stored(namespace string) stored {
	return stored{
		sessions: u.Sessions.Usage(namespace), chunks: u.Chunks.Usage(namespace),
		others: u.Conversations.Bytes(namespace) + u.Summaries.Usage(namespace).Bytes,
	}
}

// stored is the usage of one or more namespaces.
type stored struct {
	sessions sessions.Usage
	chunks   sizes.Usage
	others   int64 // bytes of Conversations and their summaries
}

func (s stored) bytes() int64 { return s.sessions.Bytes + s.chunks.Bytes + s.others }

func (s stored) plus(other stored) stored {
	return stored{
		sessions: sessions.Usage{Sessions: s.sessions.Sessions + other.sessions.Sessions, Bytes: s.sessions.Bytes + other.sessions.Bytes},
		chunks:   sizes.Usage{Objects: s.chunks.Objects + other.chunks.Objects, Bytes: s.chunks.Bytes + other.chunks.Bytes},
		others:   s.others + other.others,
	}
}

var (
	storedBytesDesc = prometheus.NewDesc("catena_stored_bytes",
		"Number of bytes that a namespace stores, as in the status of a SessionQuota. Only the leader reports it, for the largest "+
			"namespaces. The sum of all others has an empty namespace.", []string{"namespace"}, nil)
	storedSessionsDesc = prometheus.NewDesc("catena_stored_sessions",
		"Number of ResponseSessions that a namespace stores, for the same namespaces as catena_stored_bytes.", []string{"namespace"}, nil)
	storedChunksDesc = prometheus.NewDesc("catena_stored_snapshot_chunks",
		"Number of SnapshotChunks that a namespace stores, for the same namespaces as catena_stored_bytes.", []string{"namespace"}, nil)
)

var _ prometheus.Collector = &UsageCounter{}

// Describe implements prometheus.Collector.
func (u *UsageCounter) Describe(descs chan<- *prometheus.Desc) {
	descs <- storedBytesDesc
	descs <- storedSessionsDesc
	descs <- storedChunksDesc
}

// Collect implements prometheus.Collector.
func (u *UsageCounter) Collect(metrics chan<- prometheus.Metric) {
	if !u.HasSynced() {
		return
	}
	for namespace, stored := range u.largest() {
		metrics <- prometheus.MustNewConstMetric(storedBytesDesc, prometheus.GaugeValue, float64(stored.bytes()), namespace)
		metrics <- prometheus.MustNewConstMetric(storedSessionsDesc, prometheus.GaugeValue, float64(stored.sessions.Sessions), namespace)
		metrics <- prometheus.MustNewConstMetric(storedChunksDesc, prometheus.GaugeValue, float64(stored.chunks.Objects), namespace)
	}
}

// largest returns the usage of the largest namespaces, and under "" the sum of all others.
func (u *UsageCounter) largest() map[string]stored {
	all := map[string]stored{}
	for name, usage := range u.Sessions.Usages() {
		all[name] = stored{sessions: usage}
	}
	for name, usage := range u.Chunks.Usages() {
		all[name] = all[name].plus(stored{chunks: usage})
	}
	for name, bytes := range u.Conversations.AllBytes() {
		all[name] = all[name].plus(stored{others: bytes})
	}
	for name, usage := range u.Summaries.Usages() {
		all[name] = all[name].plus(stored{others: usage.Bytes})
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].bytes(), all[a].bytes()), cmp.Compare(a, b))
	})
	for _, name := range names[min(u.MaxNamespaces, len(names)):] {
		all[""] = all[""].plus(all[name])
		delete(all, name)
	}
	return all
}
