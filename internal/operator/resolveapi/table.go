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
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/operator/resolve"
)

// maxTableRows limits a table, which takes many times the memory of JSON. A page is always within it.
const maxTableRows = 10_000

// rowBytes is approximately the memory that a row of a table, a verdict of a list, or a turn of a conversation takes until its client
// has read it.
const rowBytes = 4 << 10

// The limits of texts in a table.
const (
	maxTextRunes = 80
	maxWordRunes = 64
)

var tableColumns = []metav1.TableColumnDefinition{
	{Name: "Index", Type: "integer", Description: "The position of the item in the history, from 0 for the oldest."},
	{Name: "Turn", Type: "string", Description: "The response ID of the turn that the item belongs to."},
	{Name: "Type", Type: "string", Description: "The type of the item."},
	{Name: "Role", Type: "string", Description: "The role of a message."},
	{Name: "Text", Type: "string", Description: "The beginning of the item's text."},
}

// tableConvertor converts a history into the table that kubectl prints: a row for each item.
type tableConvertor struct{}

// ConvertToTable returns a table with a row for each item, in the order of the answer. It refuses more than maxTableRows.
func (tableConvertor) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	a, ok := object.(*answer)
	if !ok {
		return nil, fmt.Errorf("unable to convert %T to a table", object)
	}
	if a.Len() > maxTableRows {
		return nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the response has %d items, and a table is limited to %d: request JSON, or pages with `limit`", a.Len(), maxTableRows))
	}
	switch err := a.history.Reserve(int64(a.Len()) * rowBytes); {
	case errors.Is(err, resolve.ErrTooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error() + ": request JSON, or pages with `limit`")
	case err != nil:
		return nil, busy(err)
	}
	table := &metav1.Table{ColumnDefinitions: headers(options, tableColumns), Rows: make([]metav1.TableRow, 0, a.Len())}
	// Every row refers to the same object, without its items: they would make the table many times as large.
	object = a.object
	for p := range a.Ranges() {
		turn := oneLine(a.history.Turns[p.Turn].ResponseID, maxWordRunes)
		for i := p.From; i < p.To; i++ {
			entry := i
			if a.Descending() {
				entry = p.From + p.To - 1 - i
			}
			cells := append([]any{int64(p.Start + entry), turn}, itemCells(a.Entry(p.Turn, entry))...)
			table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: object}})
		}
	}
	return table, nil
}

// headers returns the columns, or nil if the options of the table request none.
func headers(options runtime.Object, columns []metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	if o, ok := options.(*metav1.TableOptions); ok && o.NoHeaders {
		return nil
	}
	return columns
}

// itemCells returns the cells of type, role and text. An item can have many megabytes: it is scanned once, and only the beginnings of
// its texts are decoded.
func itemCells(raw []byte) []any {
	item := jsonvalue.RawMembers(jsonvalue.Text(raw), "type", "role", "name", "arguments", "input", "content", "output", "summary")
	itemType, role, name := stringOf(item[0]), stringOf(item[1]), stringOf(item[2])
	if itemType == "" && role != "" {
		itemType = "message" // the short form of a message has no type
	}
	text := ""
	for _, raw := range item[5:] { // the content, the output and the summary
		if text = textOf(raw); text != "" {
			break
		}
	}
	if name != "" {
		text = name + "(" + cmp.Or(textOf(item[3]), textOf(item[4])) + ")"
	}
	return []any{oneLine(itemType, maxWordRunes), oneLine(role, maxWordRunes), oneLine(text, maxTextRunes)}
}

// maxTextBytes is how much of the text of an item, as JSON, is decoded to fill a cell, and maxTextParts in how many parts it is looked for.
const (
	maxTextBytes = 4 << 10
	maxTextParts = 100
)

// textOf returns the beginning of the text of a raw value: a string, or a list of parts with a text. Any other value has none.
func textOf(raw string) string {
	if !jsonvalue.IsList(raw) {
		return stringOf(raw)
	}
	var all strings.Builder
	parts := 0
	for _, part := range jsonvalue.Elements(raw) {
		fields := jsonvalue.RawMembers(part, "text", "refusal")
		if text := cmp.Or(stringOf(fields[0]), stringOf(fields[1])); text != "" {
			all.WriteString(text + " ")
		}
		if parts++; all.Len() > maxTextBytes || parts == maxTextParts {
			break
		}
	}
	return strings.TrimRight(all.String(), " ")
}

func stringOf(raw string) string { return jsonvalue.UnquoteFirst(raw, maxTextBytes) }

// oneLine returns the beginning of s as one line, with single spaces and without control characters.
func oneLine(s string, maxRunes int) string {
	var line []rune
	pending := false // a space, if anything follows
	for _, r := range s {
		if unicode.IsSpace(r) {
			pending = len(line) > 0
			continue
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			continue
		}
		if pending {
			line, pending = append(line, ' '), false
		}
		if line = append(line, r); len(line) > maxRunes {
			return strings.TrimRight(string(line[:maxRunes-1]), " ") + "…"
		}
	}
	return string(line)
}
