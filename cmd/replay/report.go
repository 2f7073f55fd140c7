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
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/catena-dev/catena/internal/recorded"
)

// report is the result of a run so far.
type report struct {
	recorded    int // without skipped turns
	skipped     int
	stored      int
	chains      int
	items       int
	bytes       int
	differences int
	storing     []time.Duration
	resolving   []time.Duration
}

func (r *replay) add(update func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	update()
}

// skip reports a turn that is skipped because of its size.
func (r *replay) skip(t *recorded.Turn, id string, size int) {
	r.add(func() { r.skipped++ })
	fmt.Fprintf(os.Stderr, "line %d: skipping turn %q: its size of %d bytes exceeds --max-turn-bytes (%d)\n", t.Line, id, size, r.maxTurnBytes)
}

// differ reports a value that was not read back as stored.
func (r *replay) differ(what string) {
	r.add(func() { r.differences++ })
	fmt.Fprintln(os.Stderr, "difference:", what)
}

// showProgress prints a line per second until stop is called.
func (r *replay) showProgress(w io.Writer) (stop func()) {
	ticker := time.NewTicker(time.Second)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ticker.C:
				r.add(func() {
					fmt.Fprintf(w, "%s: %d turns stored, %d chains resolved, %d differences\n",
						time.Since(r.start).Round(time.Second), r.stored, r.chains, r.differences)
				})
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-stopped
	}
}

// summarize prints the result of the run.
func (r *replay) summarize(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(w, "turns        %d recorded, %d stored, %d skipped\n", r.recorded+r.skipped, r.stored, r.skipped)
	fmt.Fprintf(w, "chains       %d of up to %d turns, resolved\n", r.chains, r.chainLength)
	fmt.Fprintf(w, "items        %d in %d bytes of responses\n", r.items, r.bytes)
	fmt.Fprintf(w, "differences  %d\n", r.differences)
	fmt.Fprintf(w, "store        a turn: %s\n", quantiles(r.storing))
	fmt.Fprintf(w, "resolve      a chain: %s\n", quantiles(r.resolving))
	fmt.Fprintf(w, "time         %s with %d workers\n", time.Since(r.start).Round(time.Millisecond), r.workers)
}

func quantiles(durations []time.Duration) string {
	if len(durations) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(durations))
	at := func(percent int) time.Duration {
		return sorted[(len(sorted)-1)*percent/100].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s", at(50), at(99), at(100))
}
