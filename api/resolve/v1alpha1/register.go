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

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the resources.
const (
	Resource                     = "inputitems"           // of InputItems
	VerdictsResource             = "sessionverdicts"      // of SessionVerdicts
	ConversationsResource        = "conversationturns"    // of ConversationTurns
	ConversationItemsResource    = "conversationitems"    // of ConversationItems
	ConversationListsResource    = "conversationlists"    // of ConversationLists
	ConversationVerdictsResource = "conversationverdicts" // of ConversationVerdicts
)

var (
	// GroupVersion is the group and version of this package's types.
	GroupVersion = schema.GroupVersion{Group: "resolve.catena.dev", Version: "v1alpha1"}

	// SchemeGroupVersion is GroupVersion under the name that generated code expects.
	SchemeGroupVersion = GroupVersion

	// SchemeBuilder collects the functions that add this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes, addConversions)

	// AddToScheme adds this package's types to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &InputItems{}, &InputItemsOptions{}, &ConversationItems{}, &SessionVerdict{}, &SessionVerdictList{},
		&ConversationTurns{}, &ConversationTurnsOptions{}, &ConversationLists{}, &ConversationListsOptions{},
		&ConversationVerdict{}, &ConversationVerdictList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
