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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

var conversationColumns = []metav1.TableColumnDefinition{
	{Name: "Response", Type: "string", Description: "The response ID of the turn."},
	{Name: "Previous", Type: "string", Description: "The response ID of the parent."},
	{Name: "Status", Type: "string", Description: "The status of the response."},
	{Name: "Created", Type: "string", Description: "When the response was created."},
	{Name: "Completed", Type: "string", Description: "When the response was completed."},
}

// conversationTable converts the turns of a conversation into the table that kubectl prints.
type conversationTable struct{}

// ConvertToTable returns a table with a row for each turn. If there are more turns, it adds a warning, because kubectl does not
// print the cursor.
func (conversationTable) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	list, ok := object.(*resolvev1alpha1.ConversationTurns)
	if !ok {
		return nil, fmt.Errorf("unable to convert %T to a table", object)
	}
	if list.Next != "" {
		warning.AddWarning(ctx, "", fmt.Sprintf("these are %d turns of a conversation that has more: read it in pages, with `limit` and `after`", len(list.Turns)))
	}
	converted := &metav1.Table{ColumnDefinitions: headers(options, conversationColumns), Rows: make([]metav1.TableRow, len(list.Turns))}
	// Every row refers to the same object, without its turns.
	row := *list
	row.Turns = nil
	for i, turn := range list.Turns {
		converted.Rows[i] = metav1.TableRow{Object: runtime.RawExtension{Object: &row}, Cells: []any{
			oneLine(turn.ResponseID, maxWordRunes), oneLine(turn.PreviousResponseID, maxWordRunes), oneLine(turn.ResponseStatus, maxWordRunes),
			timeCell(turn.CreatedAt), timeCell(turn.CompletedAt),
		}}
	}
	return converted, nil
}

// timeCell returns an empty string for the zero time.
func timeCell(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
