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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

var conversationListColumns = []metav1.TableColumnDefinition{
	{Name: "Conversation", Type: "string", Description: "The conversation ID."},
	{Name: "User", Type: "string", Description: "The ID of the user."},
	{Name: "State", Type: "string", Description: "The state of the conversation."},
	{Name: "Title", Type: "string", Description: "The beginning of the title."},
	{Name: "Created", Type: "string", Description: "When the conversation was created."},
	{Name: "Activity", Type: "string", Description: "When its last turn was stored."},
	{Name: "Updated", Type: "string", Priority: 1, Description: "When the conversation itself was last changed."},
	{Name: "Head", Type: "string", Priority: 1, Description: "The response ID of the last turn."},
	{Name: "Parent", Type: "string", Priority: 1, Description: "The ID of the parent conversation."},
}

// conversationListTable converts conversations into the table that kubectl prints.
type conversationListTable struct{}

// ConvertToTable returns a table with a row for each conversation. If there are more, it adds a warning, because kubectl does not print the
// cursor.
func (conversationListTable) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	list, ok := object.(*resolvev1alpha1.ConversationLists)
	if !ok {
		return nil, fmt.Errorf("unable to convert %T to a table", object)
	}
	if list.Next != "" {
		warning.AddWarning(ctx, "", fmt.Sprintf("these are %d conversations of more: read them in pages, with `limit` and `after`", len(list.Conversations)))
	}
	converted := &metav1.Table{
		ColumnDefinitions: headers(options, conversationListColumns), Rows: make([]metav1.TableRow, len(list.Conversations)),
	}
	// Every row refers to the same object, without its conversations.
	row := *list
	row.Conversations = nil
	for i := range list.Conversations {
		c := &list.Conversations[i]
		converted.Rows[i] = metav1.TableRow{Object: runtime.RawExtension{Object: &row}, Cells: []any{
			oneLine(c.ConversationID, maxWordRunes), oneLine(c.UserID, maxWordRunes), oneLine(c.State, maxWordRunes), oneLine(c.Title, maxTextRunes),
			timeCell(c.CreatedAt), timeCell(c.LastActivityAt), timeCell(c.UpdatedAt),
			oneLine(c.HeadResponseID, maxWordRunes), oneLine(c.ParentConversationID, maxWordRunes),
		}}
	}
	return converted, nil
}
