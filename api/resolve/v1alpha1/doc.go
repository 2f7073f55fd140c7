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

// Package v1alpha1 is the v1alpha1 version of the resolve.catena.dev API: InputItems, the whole history of a turn as one
// list of input items, ConversationItems, that of a conversation, SessionVerdicts and ConversationVerdicts, whether a chain is intact,
// ConversationTurns, which turns belong to a conversation, and ConversationLists, which conversations there are. They are computed when
// they are requested and stored nowhere, so they have no CRD: the Catena operator serves them through the aggregation layer.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.catena.resolve.v1alpha1
// +groupName=resolve.catena.dev
package v1alpha1
