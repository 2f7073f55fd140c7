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

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// newStatus returns the complete status of a session as the leader writes it. The fingerprint, the applied fields and the
// fields to clear are all derived from it, so that a new field is added only here.
func newStatus(v sessions.Verdict, now time.Time) *v1alpha1.ResponseSessionStatus {
	r := v.Record
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionChainValid,
		Status:             metav1.ConditionStatus(v.Rule.ConditionStatus()),
		Reason:             v.Rule.Reason(),
		Message:            v.Explanation.Message(),
		ObservedGeneration: r.Generation,
	}
	condition.LastTransitionTime = transitionTime(condition.Status, r.ChainValid, r.Since, now)
	status := &v1alpha1.ResponseSessionStatus{
		Conditions:         []metav1.Condition{condition},
		ObservedGeneration: r.Generation,
		Depth:              int32(v.Depth),
		RootResponseID:     v.Root,
		BrokenAt:           v.BrokenAt,
		SnapshotStore:      v1alpha1.SnapshotStoreInline,
		SnapshotBytes:      r.SnapshotBytes,
	}
	if snapshot := r.Snapshot(); snapshot != nil {
		status.SnapshotStore = snapshot.Store
		if !r.Verified {
			status.SnapshotBytes = 0
		}
	}
	return status
}

// transitionTime returns the lastTransitionTime of a condition with this status that had the known one since then.
func transitionTime(status metav1.ConditionStatus, known sessions.ConditionStatus, since sessions.Seconds, now time.Time) metav1.Time {
	if status != known.Status() || since == 0 {
		return metav1.NewTime(now)
	}
	return since.Time()
}

// reconcileStatus writes the status that follows from a verdict if the object has a different one. If the write must wait, it
// returns the delay.
func (r *ResponseSessionReconciler) reconcileStatus(ctx context.Context, v sessions.Verdict) (wait time.Duration, err error) {
	status := newStatus(v, r.Clock.Now())
	switch {
	case sessions.NewFingerprint(status) == v.Record.Written:
		r.paces.forgetStatus(v.Record.NamespacedName())
		return 0, nil
	case v.Record.HasVerdict && r.settling.waits(v.Record.NamespacedName()):
		r.paces.forgetStatus(v.Record.NamespacedName())
		return 0, nil
	}
	if wait = r.paces.delay(r.Clock.Now(), &v.Record.Object, v.Record.HasVerdict); wait > 0 {
		return wait, nil
	}
	return 0, r.writeStatus(ctx, v, status)
}

func (r *ResponseSessionReconciler) writeStatus(ctx context.Context, v sessions.Verdict, status *v1alpha1.ResponseSessionStatus) error {
	written := atVersion(v1alpha1.ResponseSessionKind, &v.Record.Object, v.Record.Version())
	if err := applyStatus(ctx, r.Client, written, status); err != nil {
		return err
	}
	r.View.Observe(v.Record.Namespace, v.Record.Name, func(known *sessions.Record) *sessions.Record {
		return known.WithMetadata(written).WithStatus(status)
	})
	r.recordTransition(ctx, v, status)
	return nil
}

// applyStatus writes the complete status of an object, which atVersion has returned, and sets its metadata to that after the write. It
// fails with a conflict if there is a newer version, which the watch will deliver: that may have this status already, from a write whose
// response was lost, or from the previous leader.
func applyStatus(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata, status any) error {
	patch, err := applyPatch(statusConfiguration(object, status))
	if err != nil {
		return err
	}
	known := object.ResourceVersion
	if err := c.Status().Patch(ctx, object, patch, FieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("unable to write the status: %w", err)
	}
	if object.ResourceVersion == known {
		// The apply changed nothing, but the status differs: another writer has set fields that must be absent.
		if err := clearStatus(ctx, c, object, status); err != nil {
			return fmt.Errorf("unable to clear the status fields of another writer: %w", err)
		}
	}
	return nil
}

// anyVersion makes a write succeed whatever the version of the object is. After such a write, the view must not take its result for
// the known version with this change: there may have been others.
const anyVersion = ""

// atVersion identifies a version of an object of one of our kinds.
func atVersion(kind string, o *sessions.Object, version string) *metav1.PartialObjectMetadata {
	object := partialMetadata(kind, o.Namespace, o.Name)
	object.UID, object.ResourceVersion = o.UID.Text(), version
	return object
}

// statusConfiguration returns the apply configuration of a status for a version of an object. The UID keeps the apply from creating an
// object.
func statusConfiguration(object *metav1.PartialObjectMetadata, status any) map[string]any {
	metadata := map[string]any{"namespace": object.Namespace, "name": object.Name, "uid": object.UID}
	if object.ResourceVersion != anyVersion {
		metadata["resourceVersion"] = object.ResourceVersion
	}
	return map[string]any{"apiVersion": object.APIVersion, "kind": object.Kind, "metadata": metadata, "status": status}
}

// clearStatus removes the fields that a status does not have. An apply removes only fields that it has set itself.
func clearStatus(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata, status any) error {
	absent, err := absentFields(status)
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": absent})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, data), FieldOwner)
}

// absentFields maps the JSON names of the fields that a status, which is a pointer to a struct, does not have to nil.
func absentFields(status any) (map[string]any, error) {
	data, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var present map[string]json.RawMessage
	if err := json.Unmarshal(data, &present); err != nil {
		return nil, err
	}
	absent := map[string]any{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(status).Elem()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, found := present[name]; !found {
			absent[name] = nil
		}
	}
	return absent, nil
}
