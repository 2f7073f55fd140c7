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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/catena-dev/catena/api/resolve/openapi"
	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

var (
	scheme         = runtime.NewScheme()
	codecFactory   = serializer.NewCodecFactory(scheme)
	codecs         = jsonCodecs{codecFactory}
	parameterCodec = runtime.NewParameterCodec(scheme)
)

func init() {
	utilruntime.Must(resolvev1alpha1.AddToScheme(scheme))
	// The types of every API server: Status, APIGroup and the like.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
}

// jsonCodecs are the codecs of JSON. InputItems have no binary form, and YAML would have to be converted as a whole in memory, for
// which nested items can need a thousand times their size.
type jsonCodecs struct{ serializer.CodecFactory }

// SupportedMediaTypes returns the media type of JSON.
func (c jsonCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(c.CodecFactory.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return []runtime.SerializerInfo{info}
}

// definitions returns the generated OpenAPI definitions, with a short description of a JSON object: the generated one is
// long, and meant for developers of Kubernetes.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := openapi.GetOpenAPIDefinitions(ref)
	name := runtime.RawExtension{}.OpenAPIModelName()
	object := all[name]
	object.Schema.Description = "A JSON object of any shape."
	all[name] = object
	return all
}
