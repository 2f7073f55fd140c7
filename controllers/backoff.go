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

// backoff has when what has failed may be tried again: at once if the object has another version, which its owner may have made to mend it, and
// otherwise after twice the time before. Unlike the queue of a controller, it does not forget that when the object waits for something else
// meanwhile. It is safe for concurrent use. The zero value is ready.
type backoff struct {
	mu       sync.Mutex
	failures map[types.NamespacedName]failure
}

// failure is the last one of an object.
type failure struct {
	uid     sessions.UID
	version uint64
	delay   time.Duration
	until   time.Time
}

// wait returns how long an object must wait, or 0 if it may be tried.
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

// add records a failure. The wait after it is twice as long as that after the failure before, up to the longest.
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
