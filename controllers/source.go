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
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// viewSource feeds a controller's queue from the view.
type viewSource struct {
	view  *sessions.View
	order *fair.Queue[reconcile.Request] // of the queue
	// settling holds back sessions whose verdicts keep changing.
	settling *settling
	// rewritesPerSecond is the rate at which their statuses may be written, for each namespace.
	rewritesPerSecond float64
	// current reports that nothing has to be written for a session, or read.
	current func(sessions.Verdict) bool
}

var _ source.SyncingSource = &viewSource{}

// Start implements source.Source.
func (s *viewSource) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	add := func(namespace string, names []string) {
		for _, name := range names {
			verdict, found := s.view.Verdict(namespace, name)
			if found && s.current(verdict) {
				continue // as almost all after a restart, and each after its own status has been written
			}
			if found {
				s.order.Mark(request(namespace, name), markOf(&verdict.Record.Object, verdict.Record.AwaitsVerdict(), sessionUnitBytes))
			}
			queue.Add(request(namespace, name))
		}
	}
	others := newOutlet(s.rewritesPerSecond, itself, add)
	s.view.Subscribe(func(change sessions.Change) {
		if change.Name == "" { // a list: of the first one, almost all are current, and others are rare
			add(change.Namespace, change.Others)
			return
		}
		add(change.Namespace, []string{change.Name})
		s.settling.changed(change, others.queue)
	})
	return nil
}

// WaitForSync implements source.SyncingSource. Verdicts from an incomplete view would be wrong, and would be written.
func (s *viewSource) WaitForSync(ctx context.Context) error { return s.view.WaitForSync(ctx) }

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}
