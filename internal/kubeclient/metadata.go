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
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
)

// annotations are those that ParseMetadata reads.
var annotations = []string{
	v1alpha1.OmitOwnerReferenceAnnotation, v1alpha1.SessionAnnotation, v1alpha1.DataSizeAnnotation, v1alpha1.UnreferencedSinceAnnotation,
	metav1.InitialEventsAnnotationKey,
}

// ParseMetadata reads the fields that Catena uses from the metadata of an object or bookmark, as the API server has sent it, and the time of
// deletion only as far as there is one. The cost of all other fields is that of scanning them. The result shares no memory with the argument.
func ParseMetadata(metadata gjson.Result) metav1.ObjectMeta {
	fields := jsonvalue.Members(metadata,
		"namespace", "name", "uid", "generation", "resourceVersion", "deletionTimestamp", "annotations", "ownerReferences",
		"creationTimestamp")
	parsed := metav1.ObjectMeta{
		Namespace: strings.Clone(fields[0].Str), Name: strings.Clone(fields[1].Str), UID: types.UID(strings.Clone(fields[2].Str)),
		Generation: fields[3].Int(), ResourceVersion: strings.Clone(fields[4].Str),
	}
	if fields[5].Type != gjson.Null {
		parsed.DeletionTimestamp = &metav1.Time{}
	}
	if created, err := time.Parse(time.RFC3339, fields[8].Str); err == nil { // the API server writes no other format
		parsed.CreationTimestamp = metav1.NewTime(created)
	}
	for i, value := range jsonvalue.Members(fields[6], annotations...) {
		if value.Type == gjson.String {
			metav1.SetMetaDataAnnotation(&parsed, annotations[i], strings.Clone(value.Str))
		}
	}
	for _, owner := range fields[7].Array() {
		f := jsonvalue.Members(owner, "apiVersion", "kind", "name", "uid")
		parsed.OwnerReferences = append(parsed.OwnerReferences, metav1.OwnerReference{
			APIVersion: strings.Clone(f[0].Str), Kind: strings.Clone(f[1].Str), Name: strings.Clone(f[2].Str),
			UID: types.UID(strings.Clone(f[3].Str)),
		})
	}
	return parsed
}
