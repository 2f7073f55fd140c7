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

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

// stored returns the turn for an object, with its bodies from the object or the snapshot.
func (c *cluster) stored(ctx context.Context, object *v1alpha1.ResponseSession) (*driver.Session, error) {
	bodies, err := c.bodies(ctx, object)
	if errors.Is(err, snapshot.ErrUnreadable) {
		return nil, unreadable(object.Spec.ResponseID, err)
	}
	if err != nil {
		return nil, err
	}
	return withBodies(object, bodies), nil
}

// withBodies returns the turn for an object and its bodies.
func withBodies(object *v1alpha1.ResponseSession, bodies snapshot.Bodies) *driver.Session {
	spec := &object.Spec
	return &driver.Session{
		ResponseID:         spec.ResponseID,
		PreviousResponseID: spec.PreviousResponseID,
		ConversationID:     spec.ConversationID,
		CreatedAt:          fromTime(spec.CreatedAt),
		CompletedAt:        fromTime(spec.CompletedAt),
		Status:             spec.ResponseStatus,
		Request:            bodies.Request,
		Response:           bodies.Response,
		Metadata:           bodies.Metadata,
		Immutable:          spec.Immutable != nil && *spec.Immutable,
		Version:            version(object),
	}
}

func (c *cluster) bodies(ctx context.Context, object *v1alpha1.ResponseSession) (snapshot.Bodies, error) {
	spec := &object.Spec
	if err := snapshot.CheckFormats("this program", int64(spec.Format), spec.Snapshot); err != nil {
		return snapshot.Bodies{}, err
	}
	switch {
	case spec.Snapshot != nil:
		return c.readSnapshot(ctx, object)
	case spec.Packed != "":
		size, err := snapshot.UnpackedSize(spec.Packed)
		if err == nil {
			err = metered.Take(ctx, int64(size))
		}
		if err != nil {
			return snapshot.Bodies{}, err
		}
		return metered.Processed(ctx, size, func() (snapshot.Bodies, error) { return snapshot.Unpack(spec.Packed) })
	default:
		return snapshot.Bodies{Request: fromExtension(spec.Request), Response: fromExtension(spec.Response), Metadata: fromExtension(spec.Metadata)}, nil
	}
}

func (c *cluster) readSnapshot(ctx context.Context, object *v1alpha1.ResponseSession) (snapshot.Bodies, error) {
	ref, id := object.Spec.Snapshot, object.Spec.ResponseID
	if !snapshot.Within(ref, c.maxTurnBytes) {
		return snapshot.Bodies{}, &driver.Error{
			Code: driver.CodeTooLarge, ResponseID: id,
			Message: fmt.Sprintf("response %q has %d bytes: this store reads at most %d", id, ref.SizeBytes, c.maxTurnBytes),
		}
	}
	if err := metered.Take(ctx, readMemory(ref)); err != nil {
		return snapshot.Bodies{}, err
	}
	bodies, err := c.reads.Read(metered.Without(ctx), types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, ref)
	if err != nil && !errors.Is(err, snapshot.ErrUnreadable) {
		err = toError(ctx, id, "read the bodies of the turn", err)
	}
	return bodies, err
}

func unreadable(responseID string, err error) error {
	return &driver.Error{Code: driver.CodeUnreadable, ResponseID: responseID, Message: fmt.Sprintf("response %q cannot be read", responseID), Err: err}
}

// readMemory returns the memory for reading a snapshot: for its bodies, for what is stored, which may be a single frame and grows while
// it is read, and for one chunk as JSON.
func readMemory(ref *v1alpha1.SnapshotReference) int64 {
	return ref.SizeBytes + 2*ref.StoredBytes + 3*min(ref.StoredBytes, v1alpha1.MaxSnapshotChunkBytes)
}

// maxModelBytes is the maximum length of a model name that is copied to the object.
const maxModelBytes = 256

// spec returns the spec for a turn. It writes the bodies to a snapshot if they do not fit into the object.
func (c *cluster) spec(ctx context.Context, namespace string, session *driver.Session) (*v1alpha1.ResponseSessionSpec, error) {
	spec := &v1alpha1.ResponseSessionSpec{
		ResponseID:         session.ResponseID,
		PreviousResponseID: session.PreviousResponseID,
		ConversationID:     session.ConversationID,
		CreatedAt:          toTime(session.CreatedAt),
		CompletedAt:        toTime(session.CompletedAt),
		ResponseStatus:     session.Status,
	}
	if session.Immutable {
		spec.Immutable = new(true)
	}
	bodies := snapshot.Bodies{Request: session.Request, Response: session.Response, Metadata: session.Metadata}
	if bodies.Size() == 0 {
		return spec, nil
	}
	packed, err := c.pack(ctx, bodies)
	if err != nil {
		return nil, err
	}
	if packed != "" {
		spec.Format, spec.Packed = v1alpha1.FormatPacked, packed
	} else {
		if err := c.checkQuota(ctx, namespace, session.ResponseID); err != nil {
			return nil, err
		}
		ref, err := snapshot.Write(ctx, c.writes, objectName(namespace, session.ResponseID), bodies)
		if err != nil {
			return nil, toError(ctx, session.ResponseID, "store the bodies of the turn", err)
		}
		spec.Snapshot = ref
	}
	// The model is shown by kubectl. A longer text is not a model name.
	if model := session.Model(); model != "" && len(model) <= maxModelBytes {
		raw, err := json.Marshal(map[string]string{"model": model})
		if err != nil {
			return nil, err
		}
		spec.Request = &runtime.RawExtension{Raw: raw}
	}
	return spec, nil
}

// pack returns the bodies as an object stores them, or "" if they do not fit into one.
func (c *cluster) pack(ctx context.Context, bodies snapshot.Bodies) (string, error) {
	if bodies.Size() > c.inlineBytes {
		return "", nil
	}
	return metered.Processed(ctx, bodies.Size(), func() (string, error) {
		if !hasFewItems(bodies) {
			return "", nil
		}
		return snapshot.Pack(bodies), nil
	})
}

// hasFewItems reports whether the lists in the bodies are short enough for an object.
func hasFewItems(bodies snapshot.Bodies) bool {
	return jsonvalue.Count(jsonvalue.ValidObject(bodies.Request).RawMembers("input")[0]) <= v1alpha1.MaxListItems &&
		jsonvalue.Count(jsonvalue.ValidObject(bodies.Response).RawMembers("output")[0]) <= v1alpha1.MaxListItems
}

// replaceSpec returns the operations that replace the fields of a stored spec that this version defines. Fields that only a
// newer version defines are kept.
func replaceSpec(spec *v1alpha1.ResponseSessionSpec) ([]kubeclient.Operation, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	var operations []kubeclient.Operation
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.ResponseSessionSpec]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := "/spec/" + name
		// "add" replaces a field that exists, and "remove" fails for a field that does not.
		operations = append(operations, kubeclient.Operation{Op: "add", Path: path, Value: fields[name]})
		if fields[name] == nil {
			operations = append(operations, kubeclient.Operation{Op: "remove", Path: path})
		}
	}
	return operations, nil
}

// decodeIdentity decodes the parts of an object that decide whether it may be replaced, and where its snapshot is, whatever its other
// fields contain.
func decodeIdentity(raw []byte) (*v1alpha1.ResponseSession, error) {
	fields := jsonvalue.Members(gjson.Parse(jsonvalue.Text(raw)), "metadata", "spec")
	spec := jsonvalue.Members(fields[1], "responseID", "previousResponseID", "immutable", "format", "snapshot")
	object := &v1alpha1.ResponseSession{Spec: v1alpha1.ResponseSessionSpec{
		ResponseID: spec[0].String(), PreviousResponseID: spec[1].String(), Immutable: new(spec[2].Bool()),
	}}
	if err := json.Unmarshal([]byte(fields[0].Raw), &object.ObjectMeta); err != nil {
		return nil, fmt.Errorf("%w: %w", kubeclient.ErrUndecodable, err)
	}
	object.Spec.Format = int32(spec[3].Int())
	if spec[4].IsObject() {
		ref := jsonvalue.Members(spec[4], "store", "format", "key", "parts")
		object.Spec.Snapshot = &v1alpha1.SnapshotReference{
			Store: ref[0].String(), Format: int32(ref[1].Int()), Key: ref[2].String(), Parts: int32(ref[3].Int()),
		}
	}
	return object, nil
}

// objectName returns the name of the object of a turn.
func objectName(namespace, responseID string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: v1alpha1.ObjectName(responseID)}
}

// version identifies the spec of an object by its UID and generation, and includes the resource version for Resolve.
func version(object metav1.Object) string {
	return versionOf(string(object.GetUID()), object.GetGeneration(), object.GetResourceVersion())
}

func versionOf(uid string, generation int64, resourceVersion string) string {
	return fmt.Sprintf("%s.%d.%s", uid, generation, resourceVersion)
}

// sameVersion reports whether a version matches an object's spec. Writes of the status or of metadata change neither the UID
// nor the generation.
func sameVersion(v string, object metav1.Object) bool {
	return strings.HasPrefix(v, fmt.Sprintf("%s.%d.", object.GetUID(), object.GetGeneration()))
}

// resourceVersion returns the resource version at the end of v. v may come from another kind of store.
func resourceVersion(v string) string { return v[strings.LastIndexByte(v, '.')+1:] }

func fromTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func toTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

func fromExtension(extension *runtime.RawExtension) json.RawMessage {
	if extension == nil {
		return nil
	}
	return extension.Raw
}
