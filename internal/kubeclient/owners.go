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

package kubeclient

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// OwnerReference returns the ownerReference of a session to its parent, or of a summary to its conversation: the object of a kind with an ID.
// Its UID must just have been read: garbage collection deletes an object whose owner's UID does not exist. It returns none if the UID is
// empty.
func OwnerReference(kind, id string, owner types.UID) []metav1.OwnerReference {
	if owner == "" {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: v1alpha1.ObjectName(id),
		UID: owner, Controller: new(false), BlockOwnerDeletion: new(false),
	}}
}

// HasOutdatedOwner reports whether any of the ownerReferences of an object is outdated. Objects with more references than a
// session may have do not count, because looking up each owner would take too many requests.
func HasOutdatedOwner(owners []metav1.OwnerReference) bool {
	return len(owners) <= v1alpha1.MaxOwnerReferences && slices.ContainsFunc(owners, IsOutdated)
}

// IsOutdated reports whether an ownerReference names one of Catena's kinds in a version other than this build's. Garbage
// collection looks up an owner at the version in the reference, which the API server does not convert: see
// docs/decisions/versions.md.
func IsOutdated(owner metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == v1alpha1.GroupVersion.Group && version != v1alpha1.GroupVersion
}
