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

package resolveapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestConversationVerdictsNeedBothViews: a replica whose view of the Conversations or of the sessions is not synced, or is stale, returns no
// verdicts on conversations.
func TestConversationVerdictsNeedBothViews(t *testing.T) {
	silent := newKubeAPIServer(t)
	staleTurns, staleView := newView(t, silent, 100*time.Millisecond), newNamedView(t, silent, 100*time.Millisecond)
	closeServer(silent)
	kube := newKubeAPIServer(t)
	turns, view := newView(t, kube, time.Hour), newNamedView(t, kube, time.Hour)
	for name, tc := range map[string]struct {
		view  *conversations.View
		turns *sessions.View
		want  string
	}{
		"both current":             {view: view, turns: turns},
		"Conversations not synced": {view: conversations.NewView(time.Hour, clock.RealClock{}), turns: turns, want: "has not read the Conversations yet"},
		"sessions not synced":      {view: view, turns: sessions.NewView(64, time.Hour), want: "has not read the sessions yet"},
		"stale Conversations":      {view: staleView, turns: turns, want: "no events of the Conversations for too long"},
		"stale sessions":           {view: view, turns: staleTurns, want: "no events of the sessions for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newConversationVerdicts(tc.view, tc.turns, shareAll)
			testutil.Eventually(t, func(ctx context.Context) error {
				ctx = request.WithNamespace(inHandler(ctx), "team-a")
				_, getErr := s.Get(ctx, "conv.1", &metav1.GetOptions{})
				_, listErr := s.List(ctx, &internalversion.ListOptions{})
				for _, err := range []error{getErr, listErr} {
					if tc.want == "" && err == nil {
						continue
					}
					if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), tc.want) {
						return fmt.Errorf("got %w, want a 503 with %q", err, tc.want)
					}
				}
				return nil
			})
		})
	}
}
