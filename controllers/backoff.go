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

	"github.com/catena-dev/catena/internal/operator/sessions"
)

// backoff delays retries of failed writes. The delay doubles with each failure. A changed object is retried at once, because the change may be
// the fix. Unlike the rate limiter of a queue, it keeps its state when a reconcile succeeds with a RequeueAfter. It is safe for concurrent use,
// and its zero value is ready to use.
type backoff struct {
	mu       sync.Mutex
	failures map[types.NamespacedName]failure
}

// failure is the most recent failure of an object.
type failure struct {
	uid     sessions.UID
	version uint64
	delay   time.Duration
	until   time.Time
}

// wait returns the time until the next retry, or 0 if the object may be retried now.
func (b *backoff) wait(object *sessions.Object) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := b.last(object); last.version == object.ResourceVersion {
		return max(time.Until(last.until), 0)
	}
	return 0
}

// last returns the last failure of an object, or none.
func (b *backoff) last(object *sessions.Object) failure {
	if last := b.failures[object.NamespacedName()]; last.uid == object.UID {
		return last
	}
	return failure{}
}

// add records a failure and doubles the delay, up to longest.
func (b *backoff) add(object *sessions.Object, longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delay := min(max(2*b.last(object).delay, minBackoff), longest)
	if b.failures == nil {
		b.failures = map[types.NamespacedName]failure{}
	}
	b.failures[object.NamespacedName()] = failure{object.UID, object.ResourceVersion, delay, time.Now().Add(delay)}
}

// forget drops the failures of an object.
func (b *backoff) forget(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, name)
}
