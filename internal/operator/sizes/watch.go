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

package sizes

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/operator/lean"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks;conversationsummaries,verbs=list;watch

// Run watches all objects through a client of their group and version, and keeps the view current until ctx is done: see lean.Watch.
func (v *View) Run(ctx context.Context, client rest.Interface) {
	lean.Watch(ctx, client, v.kind, (*store)(v), v.age)
}

// store is the view as lean.Watch uses it.
type store View

func (s *store) Set(c *stored) { (*View)(s).set(c) }

func (s *store) Remove(c *stored) { (*View)(s).remove(c) }

func (s *store) Replace(all []*stored) { (*View)(s).replace(all) }
