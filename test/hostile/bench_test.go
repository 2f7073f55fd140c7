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
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
)

var (
	rounds   = flag.Int("rounds", 3, "number of rounds of BenchmarkAttacks; each has one phase with an attack and one with harmless requests")
	perPhase = flag.Int("turns", 200, "number of turns that the victim makes in each phase of BenchmarkAttacks")
	scale    = flag.Float64("scale", 1, "scale factor for the size of the attacks in BenchmarkAttacks")
	extra    = flag.String("operator-args", "", "additional flags of the operator in BenchmarkAttacks, separated by spaces")
)

// maxRatio is how much slower an attack may make the victim than the same number of harmless requests or bytes.
const maxRatio = 2

// BenchmarkAttacks measures how much slower the victim becomes. Phases with an attack alternate with phases in which the
// same clients send the same number of harmless requests, or bytes, or both, in the same time. So an attack is no faster than the clients can send
// harmless requests. It fails if the median of a
// percentile over the phases of an attack is more than maxRatio times that over the others. `make bench-hostile` runs it.
func BenchmarkAttacks(b *testing.B) {
	if err := env.Stop(); err != nil { // each attack has its own control plane, and nothing else may run beside it
		b.Fatal(err)
	}
	all := attacks()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				measure(b, all[name])
			}
		})
	}
}

// measure runs an attack in a control plane of its own, and reports the ratios.
func measure(b *testing.B, attack attack) {
	startEnvironment(b)
	a := newArena(b, attack)
	hostile, harmless := attack.prepare(a, int(float64(attack.large)*(*scale)))
	a.settle(attack)
	run := func(p phase) phase {
		p.clients, p.turns = attack.clients, *perPhase
		p = a.run(p)
		fmt.Fprintf(os.Stderr, "    %s %v\n", b.Name(), &p)
		a.settle(attack)
		return p
	}
	warmUp := run(phase{send: harmless, answers: attack.harmless()})
	b.ResetTimer()
	var attacked, compared []phase
	for range *rounds {
		p := run(phase{send: hostile, answers: attack.answers, perSecond: warmUp.pace()})
		attacked = append(attacked, p)
		compared = append(compared, run(phase{send: harmless, answers: attack.harmless(), perSecond: p.pace()}))
	}
	b.StopTimer()
	a.checkMemory()
	report(b, attacked, compared)
}

// startEnvironment starts a control plane and an operator for one benchmark.
func startEnvironment(b *testing.B) {
	b.Helper()
	environment, err := testenv.Start(b.Context(), catenatest.Options{Fsync: true, GarbageCollector: catenatest.Required})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := prepare(b.Context(), environment); err != nil {
		b.Fatal(err)
	}
}

// pace is the amount per second, at least 1.
func (p *phase) pace() float64 { return max(float64(p.amount)/p.took.Seconds(), 1) }

// report logs all figures, and fails if a ratio is too large.
func report(b *testing.B, attacked, compared []phase) {
	var text strings.Builder
	for _, kind := range []struct {
		name   string
		phases []phase
	}{{"attack", attacked}, {"harmless", compared}} {
		for i := range kind.phases {
			fmt.Fprintf(&text, "\n  %-8s phase %d: %v", kind.name, i+1, &kind.phases[i])
		}
	}
	for _, op := range operations {
		for _, percent := range []int{50, 99} {
			ours, theirs := percentiles(attacked, op, percent), percentiles(compared, op, percent)
			ratio := float64(median(ours)) / float64(median(theirs))
			result := "met"
			if ratio > maxRatio {
				result = "MISSED"
				b.Fail()
			}
			fmt.Fprintf(&text, "\n  %-7s p%d: %7.1f ms under attack %v, %7.1f ms harmless %v, ratio %.2f, limit %d: %s", op, percent,
				ms(median(ours)), inMS(ours), ms(median(theirs)), inMS(theirs), ratio, maxRatio, result)
			b.ReportMetric(ratio, fmt.Sprintf("%s-p%d-ratio", op, percent))
		}
	}
	b.Log(text.String())
}

// String returns a summary of the phase.
func (p *phase) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d turns in %.1f s, amount %d, answers %v, p50/p99 in ms:", len(p.samples[opSave]), p.took.Seconds(), p.amount, p.got)
	for _, op := range operations {
		fmt.Fprintf(&text, " %s %.0f/%.0f", op, ms(p.samples.percentile(op, 0.5)), ms(p.samples.percentile(op, 0.99)))
	}
	return text.String()
}

func percentiles(phases []phase, op operation, percent int) []time.Duration {
	values := make([]time.Duration, len(phases))
	for i, p := range phases {
		values[i] = p.samples.percentile(op, float64(percent)/100)
	}
	return values
}

func median[T cmp.Ordered](values []T) T { return slices.Sorted(slices.Values(values))[len(values)/2] }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func inMS(durations []time.Duration) string {
	values := make([]string, len(durations))
	for i, d := range durations {
		values[i] = fmt.Sprintf("%.1f", ms(d))
	}
	return "[" + strings.Join(values, " ") + "]"
}
