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

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

// verdictColumns are the columns of the ResponseSessions' table that the view has data for, with the same names.
var verdictColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the ResponseSession."},
	{Name: "Previous", Type: "string", Description: "The response ID of the parent."},
	{Name: "Status", Type: "string", Description: "The status of the response."},
	{Name: "Chain", Type: "string", Description: "The reason of the condition ChainValid."},
	{Name: "Depth", Type: "integer", Description: "The number of turns from the root."},
	{Name: "Age", Type: "date", Description: "The time since the ResponseSession was created."},
	{Name: "Root", Type: "string", Priority: 1, Description: "The response ID of the root."},
	{Name: "Broken-At", Type: "string", Priority: 1, Description: "The response ID at which the chain breaks."},
}

// verdictTable converts verdicts into the table that kubectl prints.
type verdictTable struct{}

// ConvertToTable returns a table with a row for each verdict.
func (verdictTable) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	converted := &metav1.Table{ColumnDefinitions: headers(options, verdictColumns)}
	switch object := object.(type) {
	case *resolvev1alpha1.SessionVerdict:
		converted.Rows = []metav1.TableRow{verdictRow(object)}
	case *resolvev1alpha1.SessionVerdictList:
		converted.ListMeta = object.ListMeta
		converted.Rows = make([]metav1.TableRow, len(object.Items))
		for i := range object.Items {
			converted.Rows[i] = verdictRow(&object.Items[i])
		}
	default:
		return nil, fmt.Errorf("unable to convert %T to a table", object)
	}
	return converted, nil
}

func verdictRow(v *resolvev1alpha1.SessionVerdict) metav1.TableRow {
	var depth any // an empty cell if the chain does not reach a root
	if v.Depth > 0 {
		depth = int64(v.Depth)
	}
	cells := []any{
		v.Name, oneLine(v.PreviousResponseID, maxWordRunes), oneLine(v.ResponseStatus, maxWordRunes), v.Reason, depth,
		table.ConvertToHumanReadableDateType(v.CreationTimestamp), oneLine(v.RootResponseID, maxWordRunes), oneLine(v.BrokenAt, maxWordRunes),
	}
	return metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: v}}
}
