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

package sqlite

// OpenDriver opens the driver of a file.
var OpenDriver = openDriver

// The queries for the pages of a list.
const (
	SelectPage           = selectPage
	SelectPageDescending = selectPageDescending
)

// SelectConversations returns the query for a page of conversations.
var SelectConversations = selectConversations

// DeleteUnneeded is the query that deletes a turn with its conversation.
const DeleteUnneeded = deleteUnneeded
