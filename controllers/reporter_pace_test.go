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
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/internal/operator/sessions"
)

// countedReports is a client that counts the reports of large sessions, and of others.
type countedReports struct {
	client.Client
	large, others atomic.Int32
}

func (c *countedReports) Status() client.SubResourceWriter { return countedStatuses{countedReports: c} }

type countedStatuses struct {
	client.SubResourceWriter
	countedReports *countedReports
}

func (c countedStatuses) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	if object.GetNamespace() == "large" {
		c.countedReports.large.Add(1)
	} else {
		c.countedReports.others.Add(1)
	}
	return nil
}

// TestReportsKeepPace: the reports of large sessions are written at the rate in bytes that their namespace has, and others do not wait for them.
func TestReportsKeepPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bytes = 1000
		c := &countedReports{}
		limits := StatusLimits{RewritesPerSecond: 1e6, RewriteBytesPerSecond: bytes, ValuesPerSecond: 1e6}
		reporter := NewSnapshotReporter(c, limits, clock.RealClock{}, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- reporter.Start(ctx) }()
		report := func(namespace, name string, size int32) {
			reporter.Report(&sessions.Record{Object: sessions.Object{Namespace: namespace, Name: name, ObjectBytes: size}})
		}
		for _, name := range []string{"a", "b", "c"} {
			report("large", name, 2*bytes)
		}
		report("small", "a", bytes/10)
		for second := range int32(8) {
			synctest.Wait()
			if large, others := c.large.Load(), c.others.Load(); large != min(second/2, 3) || others != 1 {
				t.Errorf("after %d s, %d large sessions are reported, and %d others", second, large, others)
			}
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble, it takes no time
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
