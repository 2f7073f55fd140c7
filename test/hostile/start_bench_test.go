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

package hostile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// cost is the cost of a number of objects when an operator starts.
type cost struct {
	verdicts time.Duration // until all of them have verdicts
	fresh    time.Duration // from when the operator is ready until a new turn of another tenant has a verdict
	cpu      float64       // seconds used by the operator until then
	resident int64         // its peak memory
}

// BenchmarkStart measures what objects cost an operator that starts. `make bench-hostile` runs it.
func BenchmarkStart(b *testing.B) { b.Run("undecodable objects", undecodableAtStart) }

// undecodableAtStart measures the cost for a starting operator of reading scale times a thousand objects that Go
// cannot decode and computing their verdicts, and the same for as many sessions of the same size. It fails if the median of the CPU time
// or of the memory is more than maxRatio times as much.
func undecodableAtStart(b *testing.B) {
	startEnvironment(b)
	body := nested(jsonvalue.MaxDepth + 1)
	flat := `"request":{"input":"` + strings.Repeat("x", len(body)) + `"},"response":{"output":[]}`
	kinds := []struct{ name, fields, reason string }{
		{"sessions", flat, v1alpha1.ReasonResolved},
		{"wrong times", flat + `,"createdAt":"2026-01-01t00:00:00z"`, v1alpha1.ReasonSnapshotUnreadable},
		{"too deep", `"request":{"input":[` + body + `]}`, v1alpha1.ReasonSnapshotUnreadable},
	}
	defer withoutTimePattern(b)()
	count := int(1000 * *scale)
	seconds, bytes := map[string][]float64{}, map[string][]float64{}
	for range b.N {
		for range *rounds {
			for _, kind := range kinds {
				c := startWith(b, count, kind.fields, kind.reason)
				b.Logf("%d %s: %.1f s of CPU, %d MiB resident, all verdicts after %.0f ms, the verdict on a new turn after %.0f ms",
					count, kind.name, c.cpu, c.resident>>20, ms(c.verdicts), ms(c.fresh))
				seconds[kind.name], bytes[kind.name] = append(seconds[kind.name], c.cpu), append(bytes[kind.name], float64(c.resident))
			}
		}
	}
	for _, kind := range kinds[1:] {
		for what, of := range map[string]map[string][]float64{"cpu": seconds, "memory": bytes} {
			ratio := median(of[kind.name]) / median(of["sessions"])
			b.ReportMetric(ratio, strings.ReplaceAll(kind.name, " ", "-")+"-"+what+"-ratio")
			if ratio > maxRatio {
				b.Errorf("%s: %.2f times as much %s as sessions, limit %d", kind.name, ratio, what, maxRatio)
			}
		}
	}
}

// startWith creates objects while no operator runs, and starts one. Then it deletes the objects.
func startWith(b *testing.B, count int, fields, reason string) (c cost) {
	b.Helper()
	if err := operator.Stop(); err != nil {
		b.Fatal(err)
	}
	a := &arena{TB: b}
	a.attacker = a.newTenant()
	testutil.Eventually(b, func(ctx context.Context) error { // the kube-apiserver may still have the pattern of times
		return a.attacker.create(ctx, session("resp_first", fields))
	})
	a.createAll(count-1, func(i int) []byte { return session(fmt.Sprintf("resp_%d", i), fields) })
	victim := env.NewNamespace(b)
	start := time.Now()
	var err error
	if operator, err = env.StartOperator(b.Context(), operatorOptions()); err != nil {
		b.Fatal(err)
	}
	ready := time.Now()
	testsession.Make(victim, "resp_fresh").Create(b, env.Client)
	wantReason(b, victim, "resp_fresh", v1alpha1.ReasonResolved, "")
	c.fresh = time.Since(ready)
	// One after another: listing the objects would dominate the load of the kube-apiserver, and reading the metrics that of
	// the operator.
	for i := range count - 1 {
		wantReason(b, a.attacker.namespace, fmt.Sprintf("resp_%d", i), reason, "")
	}
	c.verdicts, c.resident = time.Since(start), testutil.PeakMemory(b, operator.PID())
	if c.cpu, err = testenv.Sum(b.Context(), operator, "process_cpu_seconds_total", ""); err != nil {
		b.Fatal(err)
	}
	if err := a.attacker.kube.Delete().Namespace(a.attacker.namespace).Resource(kubeclient.Sessions).Do(b.Context()).Error(); err != nil {
		b.Fatal(err)
	}
	return c
}
