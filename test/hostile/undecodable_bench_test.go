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
	"github.com/catena-dev/catena/internal/testutil"
)

// BenchmarkUndecodableObjects measures what it costs an operator that starts to read and judge scale times a thousand objects that
// Go cannot decode, and as many sessions of the same size: the time until all are judged, and the resident memory.
func BenchmarkUndecodableObjects(b *testing.B) {
	body := nested(2000)
	kinds := []struct {
		name, fields, reason string
	}{
		{"sessions", `"request":{"input":"` + strings.Repeat("x", len(body)) + `"},"response":{"output":[]}`, v1alpha1.ReasonResolved},
		{"undecodable", `"request":{"input":[` + body + `]}`, v1alpha1.ReasonSnapshotUnreadable},
	}
	count := int(1000 * *scale)
	for range b.N {
		took, resident := map[string][]time.Duration{}, map[string][]int64{}
		for range *rounds {
			for _, kind := range kinds {
				duration, bytes := startWith(b, count, kind.fields, kind.reason)
				took[kind.name], resident[kind.name] = append(took[kind.name], duration), append(resident[kind.name], bytes>>20)
			}
		}
		for _, kind := range kinds {
			b.Logf("%d %s: judged after %s ms, %d MiB resident", count, kind.name, inMS(took[kind.name]), resident[kind.name])
		}
		ours, theirs := kinds[1].name, kinds[0].name
		b.ReportMetric(float64(median(took[ours]))/float64(median(took[theirs])), "time-ratio")
		b.ReportMetric(float64(median(resident[ours]))/float64(median(resident[theirs])), "memory-ratio")
	}
}

// startWith creates objects while no operator runs, and starts one. It returns how long that took until all are judged, and its
// resident memory. Then it deletes the objects.
func startWith(b *testing.B, count int, fields, reason string) (took time.Duration, resident int64) {
	b.Helper()
	if err := operator.Stop(); err != nil {
		b.Fatal(err)
	}
	a := &arena{TB: b}
	a.attacker = a.newTenant()
	a.plant(count, func(i int) []byte { return session(fmt.Sprintf("resp_%d", i), fields) })
	start := time.Now()
	var err error
	if operator, err = env.StartOperator(b.Context(), operatorOptions()); err != nil {
		b.Fatal(err)
	}
	testutil.Eventually(b, func(ctx context.Context) error {
		reasons, err := a.reasons(ctx)
		if judged := strings.Count(strings.Join(reasons, " "), reason); err == nil && judged < count {
			err = fmt.Errorf("%d of %d judged", judged, count)
		}
		return err
	})
	took, resident = time.Since(start), testutil.PeakMemory(b, operator.PID())
	if err := a.attacker.kube.Delete().Namespace(a.attacker.namespace).Resource("responsesessions").Do(b.Context()).Error(); err != nil {
		b.Fatal(err)
	}
	return took, resident
}
