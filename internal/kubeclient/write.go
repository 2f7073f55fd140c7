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
	"context"
	"encoding/json"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/metered"
)

// fieldValidation makes the API server reject fields that its CRD does not have. By default it drops them with only a
// warning, so a program that is newer than the CRD would lose data.
const fieldValidation = "fieldValidation"

// strictError is the prefix of the API server's message about such a field.
const strictError = "strict decoding error: "

// IsUnknownField reports whether the API server rejected a write because its CRD lacks a field.
func IsUnknownField(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), strictError+"unknown field")
}

// Create creates an object in a namespace and decodes the result. IsUnknownField reports true for its error if the CRD
// lacks a field.
func Create(ctx context.Context, client rest.Interface, resource, namespace string, object, into runtime.Object) error {
	return client.Post().Namespace(namespace).Resource(resource).Param(fieldValidation, metav1.FieldValidationStrict).Body(object).Do(ctx).Into(into)
}

// CreateReturningMetadata is Create for an object that need not be sent back: it returns only the metadata of the result, as ParseMetadata
// does. If the API server has accepted an object of the same kind and with the same fields from this program, validated may be set: the API
// server then does not look for fields that its CRD lacks, for which it decodes the object a second time.
func CreateReturningMetadata(
	ctx context.Context, client rest.Interface, resource, namespace string, object runtime.Object, validated bool,
) (*metav1.ObjectMeta, error) {
	validation := metav1.FieldValidationStrict
	if validated {
		validation = metav1.FieldValidationIgnore
	}
	return readMetadata(ctx, client.Post().Namespace(namespace).Resource(resource).Param(fieldValidation, validation).Body(object))
}

// CreateRaw is CreateReturningMetadata for an object as JSON, which may have fields that this program does not know. With dryRun, the API
// server checks the object, and does not store it.
func CreateRaw(
	ctx context.Context, client rest.Interface, resource, namespace string, object []byte, dryRun bool,
) (*metav1.ObjectMeta, error) {
	request := client.Post().Namespace(namespace).Resource(resource).Param(fieldValidation, metav1.FieldValidationStrict).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(object)
	if dryRun {
		request.Param("dryRun", metav1.DryRunAll)
	}
	return readMetadata(ctx, request)
}

// Operation is an operation of a JSON patch, as in RFC 6902. To the API server, a "test" for null succeeds if the field is absent, and the
// text of a value must be the same, not only its JSON value.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch changes an object with a JSON patch and decodes the result. It keeps all fields that the patch does not name,
// including those that this program does not know. The error is a conflict if a resource version is given that the object no longer
// has; IsFailedTest reports true for it if an operation cannot be applied, and IsUnknownField if the CRD lacks a field.
func Patch(
	ctx context.Context, client rest.Interface, resource string, name types.NamespacedName, resourceVersion string, operations []Operation,
	into runtime.Object,
) error {
	if resourceVersion != "" {
		operations = append([]Operation{{"replace", "/metadata/resourceVersion", resourceVersion}}, operations...)
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	answer, err := Read(metered.Without(ctx), client.Patch(types.JSONPatchType).Namespace(name.Namespace).Resource(resource).Name(name.Name).
		Param(fieldValidation, metav1.FieldValidationStrict).Body(patch)) // the object is changed even if there is no memory for the answer
	if err != nil {
		return withoutObject(err)
	}
	return decode(ctx, answer, into)
}

// IsFailedTest reports whether an operation of a JSON patch, such as a test, could not be applied, so that nothing was changed. The API server
// does not say which one.
func IsFailedTest(err error) bool {
	var status apierrors.APIStatus
	// An object that is refused is named in the details.
	return apierrors.IsInvalid(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Kind == "")
}

// withoutObject returns the error of a patch without the object. If the API server cannot decode the patched object, its
// error quotes the whole object, including its bodies.
func withoutObject(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "patch" {
			message := "unable to decode the patched object"
			if i := strings.LastIndex(cause.Message, strictError); i >= 0 {
				message = cause.Message[i:]
			}
			return apierrors.NewBadRequest(message)
		}
	}
	return err
}
