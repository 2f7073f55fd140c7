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

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
)

const (
	scaleSize         = 8 << 10
	scaleTurnsInChain = 50
	idleFor           = 20 * time.Second
)

// scaleExperiment restarts the operator with many sessions that have verdicts, and compares with a paginated LIST of them.
func scaleExperiment(ctx context.Context, b *bench) error {
	if err := b.createNamespace(ctx, "scale"); err != nil {
		return err
	}
	b.logf("saving %d sessions of 8 KiB", b.sessions)
	if err := b.fill(ctx, "scale", b.sessions/scaleTurnsInChain, scaleTurnsInChain, scaleSize); err != nil {
		return err
	}
	if err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, "scale", "status.rootResponseID="); err != nil {
		return err
	}
	b.logf("all have verdicts")

	var restart series
	listing := series{Name: "a paginated LIST of all sessions"}
	resident := 0.0
	before, err := b.versions(ctx)
	if err != nil {
		return err
	}
	restartOperator := func() (err error) {
		if err := b.restartOperator(ctx); err != nil {
			return err
		}
		ready := b.operator.ReadyAt
		started, err := startTime(ctx, b.operator)
		if err != nil {
			return err
		}
		restart.addTime(ready.Sub(started))
		// The operator is idle, so it has no reason to write anything.
		if err := idle(ctx); err != nil {
			return err
		}
		bytes, err := residentBytes(b.operator.PID())
		if err != nil {
			return err
		}
		resident = max(resident, bytes)
		b.logf("ready after %s, %.0f MiB resident", ready.Sub(started), bytes/(1<<20))
		return nil
	}
	listAll := func() error {
		return list(ctx, b.env.Client, "scale", func(*v1alpha1.ResponseSession) {})
	}
	if err := interleave(min(b.rounds, 2), restartOperator, timed(&listing, listAll)); err != nil {
		return err
	}
	used, err := b.idleReplicas(ctx)
	if err != nil {
		return err
	}
	after, err := b.versions(ctx)
	if err != nil {
		return err
	}
	writes := 0
	for name, version := range after {
		if before[name] != version {
			writes++
		}
	}
	b.compare(fmt.Sprintf("restart to ready with %d sessions of 8 KiB", b.sessions), "ms", restart, listing, atMost(1))
	b.figure(fmt.Sprintf("resident memory of the operator with %d sessions", b.sessions), "MiB", atMost(150), resident/(1<<20))
	b.figure(fmt.Sprintf("objects written by %d restarts, each with %s idle", len(restart.Samples), idleFor), "", atMost(0), float64(writes))
	b.figure(fmt.Sprintf("CPU of the busier of two idle replicas with %d sessions", b.sessions), "% of a core", atMost(1), slices.Max(used))
	return nil
}

// idle waits for idleFor.
func idle(ctx context.Context) error { return sleep(ctx, idleFor) }

// sleep waits for some time.
func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idleReplicas starts a second replica of the operator, and returns what both use while they are idle, in percent of a core.
func (b *bench) idleReplicas(ctx context.Context) (used []float64, err error) {
	replica, err := b.env.StartOperator(ctx, operatorOptions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, replica.Stop()) }()
	if err := idle(ctx); err != nil { // until the memory of the first list has been collected
		return nil, err
	}
	pids := []int{b.operator.PID(), replica.PID()}
	before, err := usage(pids...)
	if err != nil {
		return nil, err
	}
	if err := idle(ctx); err != nil {
		return nil, err
	}
	after, err := usage(pids...)
	if err != nil {
		return nil, err
	}
	for i := range after {
		used = append(used, 100*(after[i].cpu-before[i].cpu)/float64(idleFor.Milliseconds()))
	}
	b.logf("idle replicas use %.2f %% of a core", used)
	return used, nil
}

// versions returns the resource version of each session and event.
func (b *bench) versions(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	err := list(ctx, b.env.Client, "scale", func(s *v1alpha1.ResponseSession) { versions[s.Name] = s.ResourceVersion })
	if err != nil {
		return nil, err
	}
	events := &eventsv1.EventList{}
	if err := b.env.Client.List(ctx, events); err != nil {
		return nil, err
	}
	for i := range events.Items {
		versions["event "+events.Items[i].Namespace+" "+events.Items[i].Name] = events.Items[i].ResourceVersion
	}
	return versions, nil
}

// startTime returns the start time of the operator's process, with a resolution of 10 ms.
func startTime(ctx context.Context, operator *catenatest.Operator) (time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, operator.MetricsURL, nil)
	if err != nil {
		return time.Time{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "process_start_time_seconds "); found {
			var seconds float64
			_, err := fmt.Sscan(value, &seconds)
			return time.UnixMilli(int64(seconds * 1000)), err
		}
	}
	return time.Time{}, errors.Join(errors.New("the metric process_start_time_seconds is missing"), lines.Err())
}
