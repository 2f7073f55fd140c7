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

// Package kubeclient creates clients for the objects of sessions.catena.dev, and sends the requests that several packages need.
package kubeclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/metered"
)

// The names of the resources in URLs.
const (
	Sessions      = "responsesessions"
	Chunks        = "snapshotchunks"
	Quotas        = "sessionquotas"
	Conversations = "conversations"
	Summaries     = "conversationsummaries"
)

// MetadataOnly is the Accept header of requests for the metadata of one object.
const MetadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// MetadataListOnly is the Accept header of requests for the metadata of a list of objects.
const MetadataListOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// New returns a client for the group and version of ResponseSessions. It does not limit its request rate, and relies on API
// priority and fairness. Responses are not compressed: within a cluster this takes longer than it saves.
func New(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.DisableCompression = true
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("unable to create a client for %s: %w", v1alpha1.GroupVersion, err)
	}
	return client, nil
}

// ErrUndecodable indicates an object that the API server stores but Go cannot decode, such as one with a time like
// 2026-01-01t00:00:00z.
var ErrUndecodable = errors.New("unable to decode the stored object")

// Get reads an object. It returns ErrUndecodable if the API server returns one that cannot be decoded.
func Get(ctx context.Context, client rest.Interface, resource string, name types.NamespacedName, into runtime.Object) error {
	raw, err := GetRaw(ctx, client, resource, name)
	if err != nil {
		return err
	}
	if err := metered.Take(ctx, int64(len(raw))); err != nil {
		return err
	}
	return decode(ctx, raw, into)
}

// decode decodes an object as the API server has sent it.
func decode(ctx context.Context, raw []byte, into runtime.Object) error {
	metered.Object(ctx, len(raw))
	return metered.Process(ctx, len(raw), func() error {
		if err := json.Unmarshal(raw, into); err != nil {
			return fmt.Errorf("%w: %w", ErrUndecodable, err)
		}
		return nil
	})
}

// FromCache is the resource version with which the API server answers from its watch cache. That costs it half as much, but the answer
// may lack the last changes.
const FromCache = "0"

// GetRaw reads an object as the API server sends it.
func GetRaw(ctx context.Context, client rest.Interface, resource string, name types.NamespacedName) ([]byte, error) {
	return Read(ctx, GetAt(client, resource, name, ""))
}

// GetAt returns the request for an object at a resource version, or for the latest one if that is empty.
func GetAt(client rest.Interface, resource string, name types.NamespacedName, resourceVersion string) *rest.Request {
	request := client.Get().Namespace(name.Namespace).Resource(resource).Name(name.Name)
	if resourceVersion != "" {
		request.Param("resourceVersion", resourceVersion)
	}
	return request
}

// Read sends a request and returns the body of the response. If the context counts memory (see package metered), the body
// is counted as it is read.
func Read(ctx context.Context, request *rest.Request) ([]byte, error) {
	if !metered.Counts(ctx) {
		result := request.Do(ctx)
		if err := result.Error(); err != nil { // Raw would return the error of a response that is not a Status
			return nil, err
		}
		return result.Raw()
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return metered.ReadAll(body, func(bytes int64) error { return metered.Take(ctx, bytes) })
}

// maxAttempts is how many times ReadInto sends a request, and attemptInterval is the time between them. They are those of client-go.
const (
	maxAttempts     = 11
	attemptInterval = time.Second
)

// ReadInto is Read for a GET whose response replaces what is in a buffer, and does not count memory. It sends the request again if the
// connection is closed, as a load balancer does when an API server restarts.
func ReadInto(ctx context.Context, request *rest.Request, into *bytes.Buffer) error {
	for attempt := 1; ; attempt++ {
		err := readOnce(ctx, request, into)
		closed := utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
		if !closed || attempt == maxAttempts {
			return err
		}
		select {
		case <-time.After(attemptInterval):
		case <-ctx.Done():
			return err
		}
	}
}

func readOnce(ctx context.Context, request *rest.Request, into *bytes.Buffer) error {
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	into.Reset()
	_, err = into.ReadFrom(body)
	return err
}

// GetMetadata reads the metadata of an object, as ParseMetadata returns it.
func GetMetadata(ctx context.Context, client rest.Interface, resource string, name types.NamespacedName) (*metav1.ObjectMeta, error) {
	return readMetadata(ctx, GetAt(client, resource, name, ""))
}

// readMetadata sends a request whose response is one object, and returns the object's metadata.
func readMetadata(ctx context.Context, request *rest.Request) (*metav1.ObjectMeta, error) {
	result := request.SetHeader("Accept", MetadataOnly).Do(ctx)
	if err := result.Error(); err != nil { // see Read
		return nil, err
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, err
	}
	metered.Object(ctx, len(raw))
	object, err := jsonvalue.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("the response of the API server %w", err)
	}
	metadata := ParseMetadata(object.Members("metadata")[0])
	if metadata.UID == "" {
		return nil, errors.New("the response of the API server has no UID")
	}
	return &metadata, nil
}

// IsGone reports whether err indicates that the named object does not exist. Any other 404 gives no information about the
// object: the API server may not serve the resource or its version, or the response may come from another server.
func IsGone(err error, resource, name string) bool {
	details := goneDetails(err)
	return details != nil && details.Kind == resource && details.Name == name
}

// IsAnyGone is like IsGone, for an object of any name.
func IsAnyGone(err error) bool { return goneDetails(err) != nil }

func goneDetails(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonNotFound {
		return nil
	}
	details := status.Status().Details
	// client-go fills in the object if the response is not a Status, and then adds a cause that indicates this.
	if details == nil || len(details.Causes) > 0 {
		return nil
	}
	return details
}

// IsTooLargeForEtcd reports whether an API server could not store an object because of its size. It returns an internal error if
// etcd, or its client of etcd, has noticed that.
func IsTooLargeForEtcd(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && MeansTooLargeForEtcd(int(status.Status().Code), status.Status().Message)
}

// MeansTooLargeForEtcd is IsTooLargeForEtcd for the code and the body of a response.
func MeansTooLargeForEtcd(code int, body string) bool {
	return code == http.StatusInternalServerError &&
		(strings.Contains(body, "etcdserver: request is too large") || strings.Contains(body, "trying to send message larger than max"))
}

// ClusterID returns the UID of the namespace kube-system, which identifies the cluster. All users may read it: see
// config/rbac/identity_role.yaml.
func ClusterID(ctx context.Context, client rest.Interface) (string, error) {
	namespace, err := readMetadata(ctx, client.Get().AbsPath("/api/v1/namespaces", metav1.NamespaceSystem))
	if err != nil {
		return "", fmt.Errorf("unable to identify the cluster: %w", err)
	}
	return string(namespace.UID), nil
}

// ListRequest returns the request for a list or a watch of a resource in all namespaces.
func ListRequest(client rest.Interface, resource string, options *metav1.ListOptions) *rest.Request {
	return client.Get().Resource(resource).VersionedParams(options, metav1.ParameterCodec)
}

// List reads all objects of a namespace at once.
func List(ctx context.Context, client rest.Interface, resource, namespace string, into runtime.Object) error {
	return client.Get().Namespace(namespace).Resource(resource).Do(ctx).Into(into)
}

// ListSessions calls each with the metadata of up to limit ResponseSessions in a namespace whose spec has a value in a field, such as the
// children of a turn, as ListMetadata does. If from is not empty, it continues the list. It returns where the list can be continued, if there
// are more.
func ListSessions(
	ctx context.Context, client rest.Interface, namespace, field, value string, limit int, from string, each func(*metav1.ObjectMeta),
) (next string, err error) {
	selector := fields.OneTermEqualSelector("spec."+field, value).String()
	request := client.Get().Namespace(namespace).Resource(Sessions).
		Param("fieldSelector", selector).Param("limit", strconv.Itoa(limit)).Param("continue", from)
	list, err := ListMetadata(ctx, request, each)
	return list.Continue, err
}

// ListMetadata calls each with the metadata of one object of a list after another, as ParseMetadata returns it, and returns the metadata of the
// list.
func ListMetadata(ctx context.Context, request *rest.Request, each func(*metav1.ObjectMeta)) (metav1.ListMeta, error) {
	return StreamList(ctx, request.SetHeader("Accept", MetadataListOnly), func(object gjson.Result) {
		metadata := ParseMetadata(jsonvalue.Members(object, "metadata")[0])
		each(&metadata)
	})
}

// StreamList calls each with one object of a list after another, as ReadList does, and returns the metadata of the list.
func StreamList(ctx context.Context, request *rest.Request, each func(object gjson.Result)) (metav1.ListMeta, error) {
	response, err := request.Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer func() { _ = response.Close() }()
	metadata, err := ReadList(response, each)
	if err != nil {
		return metav1.ListMeta{}, fmt.Errorf("unable to read a list: %w", err)
	}
	fields := jsonvalue.Members(metadata, "resourceVersion", "continue")
	return metav1.ListMeta{ResourceVersion: fields[0].String(), Continue: fields[1].String()}, nil
}

// CurrentVersion returns a resource version that is at least as new as every acknowledged change of a resource, in all namespaces. It
// costs as much as reading one object, also for API priority and fairness: it lists by a name that no object has. The namespace,
// which need not exist, is the one in which the caller may list: a list of all namespaces would read every object.
func CurrentVersion(ctx context.Context, client rest.Interface, resource, namespace string) (uint64, error) {
	if namespace == "" {
		return 0, errors.New("a namespace is required")
	}
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, "-").String()
	request := client.Get().Namespace(namespace).Resource(resource).Param("fieldSelector", selector).Param("limit", "1")
	list, err := ListMetadata(ctx, request, func(*metav1.ObjectMeta) {})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// Annotate sets an annotation of an object, or removes it if value is empty. The error is a conflict if resourceVersion is not empty and the
// object no longer has it.
func Annotate(
	ctx context.Context, client rest.Interface, resource string, name types.NamespacedName, resourceVersion, key, value string,
) error {
	annotations := map[string]any{key: nil}
	if value != "" {
		annotations[key] = value
	}
	metadata := map[string]any{"annotations": annotations}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return client.Patch(types.MergePatchType).Namespace(name.Namespace).Resource(resource).Name(name.Name).
		SetHeader("Accept", MetadataOnly).Body(patch).Do(ctx).Error()
}

// Delete deletes an object if it meets the preconditions, which may be nil. It returns the object, as the API server sends it, if it is
// still being deleted, and otherwise nil.
func Delete(
	ctx context.Context, client rest.Interface, resource string, name types.NamespacedName,
	preconditions *metav1.Preconditions, policy metav1.DeletionPropagation,
) ([]byte, error) {
	options := &metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: preconditions}
	ctx = metered.Without(ctx) // the object is deleted even if there is no memory for the answer
	answer, err := Read(ctx, client.Delete().Namespace(name.Namespace).Resource(resource).Name(name.Name).Body(options))
	if err != nil || gjson.GetBytes(answer, "kind").Str == "Status" {
		return nil, err
	}
	metered.Object(ctx, len(answer))
	return answer, nil
}
