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

package conversations

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/lean"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=conversations,verbs=list;watch

// Run watches all conversations through a client of their group and version, and keeps the view current until ctx is done: see lean.Watch.
func (v *View) Run(ctx context.Context, client rest.Interface) {
	kind := lean.Kind[*Record]{
		Resource: kubeclient.Conversations, Name: v1alpha1.ConversationKind, Parse: v.parse,
	}
	lean.Watch(ctx, client, kind, (*store)(v), v.age)
}

// WaitForSync waits until the view has held all conversations at least once.
func (v *View) WaitForSync(ctx context.Context) error {
	select {
	case <-v.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unable to list the conversations: %w", ctx.Err())
	}
}

// HasSynced reports whether the view has held all conversations at least once.
func (v *View) HasSynced() bool {
	select {
	case <-v.synced:
		return true
	default:
		return false
	}
}

// IsStale reports whether the view may lack changes: it has not synced, or the API server has sent nothing for the timeout.
func (v *View) IsStale() bool { return !v.HasSynced() || v.age.Get() > v.timeout }

// Reflects reports whether the view is at least as new as a resource version.
func (v *View) Reflects(_ string, resourceVersion uint64) bool { return v.age.Reached(resourceVersion) }

// WaitUntilReflects waits until Reflects, or returns the error of the context if it is done first. It can take a minute.
func (v *View) WaitUntilReflects(ctx context.Context, _ string, resourceVersion uint64) error {
	return v.age.WaitUntilReached(ctx, resourceVersion)
}

// store is the view as lean.Watch uses it.
type store View

func (s *store) Set(r *Record) { (*View)(s).set(r) }

func (s *store) Remove(r *Record) { (*View)(s).remove(r) }

func (s *store) Replace(records []*Record) { (*View)(s).replace(records) }
