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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// backoff has when what has failed may be tried again. Unlike the queue of a controller, it does not forget that when the object waits for
// something else meanwhile. It is safe for concurrent use.
type backoff struct {
	longest time.Duration

	mu       sync.Mutex
	failures map[types.NamespacedName]failure
}

// failure is the last one of an object.
type failure struct {
	delay time.Duration
	until time.Time
}

func newBackoff(longest time.Duration) *backoff {
	return &backoff{longest: longest, failures: map[types.NamespacedName]failure{}}
}

// wait returns how long an object must wait, or 0 if it may be tried.
func (b *backoff) wait(name types.NamespacedName) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Until(b.failures[name].until), 0)
}

// add records a failure and returns the wait, which is twice as long as that after the failure before.
func (b *backoff) add(name types.NamespacedName) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	delay := min(max(2*b.failures[name].delay, minBackoff), b.longest)
	b.failures[name] = failure{delay, time.Now().Add(delay)}
	return delay
}

// forget drops the failures of an object.
func (b *backoff) forget(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, name)
}
