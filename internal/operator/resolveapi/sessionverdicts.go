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

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// sessionVerdictSource has the verdicts on the chains of sessions.
type sessionVerdictSource struct{ view *sessions.View }

func newSessionVerdicts(view *sessions.View, share ShareFunc) *verdicts {
	return &verdicts{
		verdictSource: sessionVerdictSource{view},
		resource:      resolvev1alpha1.VerdictsResource, singular: "sessionverdict", objects: "ResponseSessions",
		empty: &resolvev1alpha1.SessionVerdict{}, emptyList: &resolvev1alpha1.SessionVerdictList{},
		columns: sessionVerdictColumns, share: share, max: resolvev1alpha1.MaxVerdicts,
	}
}

func (s sessionVerdictSource) check(ctx context.Context, resourceVersion string) error {
	return checkView(ctx, s.view, "sessions", resourceVersion)
}

func (s sessionVerdictSource) verdict(key types.NamespacedName) (runtime.Object, bool) {
	v, found := s.view.Verdict(key.Namespace, key.Name)
	if !found {
		return nil, false
	}
	return newSessionVerdict(v), true
}

func (s sessionVerdictSource) keys(namespace string, after types.NamespacedName, limit int) []types.NamespacedName {
	return s.view.Keys(namespace, after, limit)
}

func (s sessionVerdictSource) count(namespace string) int { return s.view.Sessions(namespace) }

// sessionVisitCost is what it costs to find the first sessions of a namespace in their order, for each of its sessions, in bytes of a
// cached history that would take as long. A list of all namespaces, which few users may read, visits as few of them as it can.
const sessionVisitCost = 64

func (s sessionVerdictSource) visitCost(namespace string) int64 {
	if namespace == "" {
		return 0
	}
	return int64(s.view.Sessions(namespace)) * sessionVisitCost
}

// newSessionVerdict returns a verdict as it is in the status of its session; see newStatus in package controllers.
func newSessionVerdict(v sessions.Verdict) *resolvev1alpha1.SessionVerdict {
	r := v.Record
	return &resolvev1alpha1.SessionVerdict{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name, UID: r.UID.Text(), CreationTimestamp: r.Created.Time(),
		},
		ResponseID:         r.Turn.ID,
		PreviousResponseID: r.Turn.Previous,
		ResponseStatus:     r.Turn.Status,
		ChainValid:         metav1.ConditionStatus(v.Rule.ConditionStatus()),
		Reason:             v.Rule.Reason(),
		Depth:              int32(v.Depth),
		RootResponseID:     v.Root,
		BrokenAt:           v.BrokenAt,
	}
}

// sessionVerdictColumns are the columns of the ResponseSessions' table that the view has data for, with the same names.
var sessionVerdictColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the ResponseSession."},
	{Name: "Previous", Type: "string", Description: "The response ID of the parent."},
	{Name: "Status", Type: "string", Description: "The status of the response."},
	{Name: "Chain", Type: "string", Description: "The reason of the condition ChainValid."},
	{Name: "Depth", Type: "integer", Description: "The number of turns from the root."},
	{Name: "Age", Type: "date", Description: "The time since the ResponseSession was created."},
	{Name: "Root", Type: "string", Priority: 1, Description: "The response ID of the root."},
	{Name: "Broken-At", Type: "string", Priority: 1, Description: "The response ID at which the chain breaks."},
}

func (sessionVerdictSource) texts(verdict runtime.Object) []string {
	v := verdict.(*resolvev1alpha1.SessionVerdict)
	return []string{v.Name, v.ResponseID, v.PreviousResponseID, v.RootResponseID, v.BrokenAt}
}

func (sessionVerdictSource) cells(verdict runtime.Object) []any {
	v := verdict.(*resolvev1alpha1.SessionVerdict)
	return []any{
		v.Name, oneLine(v.PreviousResponseID, maxWordRunes), oneLine(v.ResponseStatus, maxWordRunes), v.Reason, numberCell(v.Depth),
		table.ConvertToHumanReadableDateType(v.CreationTimestamp), oneLine(v.RootResponseID, maxWordRunes), oneLine(v.BrokenAt, maxWordRunes),
	}
}
