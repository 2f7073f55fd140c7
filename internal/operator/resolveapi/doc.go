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

// Package resolveapi serves the resolve.catena.dev API: an aggregated API server that returns the whole history of a turn as
// InputItems and that of a conversation as ConversationItems, the verdicts on them as SessionVerdicts and ConversationVerdicts, the turns
// of a conversation as ConversationTurns, and the conversations of a namespace as ConversationLists. It delegates authentication and
// authorization to the kube-apiserver and keeps no state.
package resolveapi
