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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConvertToTable returns the table that kubectl prints, with a row for each verdict.
func (s *verdicts) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	converted := &metav1.Table{ColumnDefinitions: headers(options, s.columns), Rows: []metav1.TableRow{}}
	addRow := func(verdict runtime.Object) error {
		converted.Rows = append(converted.Rows, metav1.TableRow{Cells: s.cells(verdict), Object: runtime.RawExtension{Object: verdict}})
		return nil
	}
	list, isList := object.(metav1.ListInterface)
	if !isList {
		return converted, addRow(object)
	}
	converted.Continue = list.GetContinue()
	if err := meta.EachListItem(object, addRow); err != nil {
		return nil, fmt.Errorf("unable to convert %T to a table: %w", object, err)
	}
	return converted, nil
}

// numberCell returns the cell of a number that is absent if it is 0.
func numberCell(n int32) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}
