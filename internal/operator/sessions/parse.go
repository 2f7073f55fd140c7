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

package sessions

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// parsed is an object whose metadata has been read, and whose spec and status have been found.
type parsed struct {
	meta         metav1.ObjectMeta // the fields that a record keeps
	object       gjson.Result      // the whole object
	spec, status gjson.Result
}

// parseObject reads an object as the API server has sent it.
func parseObject(object gjson.Result) parsed {
	fields := jsonvalue.Members(object, "metadata", "spec", "status")
	return parsed{meta: kubeclient.ParseMetadata(fields[0]), object: object, spec: fields[1], status: fields[2]}
}

// record returns a record with the fields that are derived from the metadata alone.
func (p *parsed) record() *Record {
	return &Record{
		Object:  NewObject(&p.meta, p.object),
		Created: SecondsOf(p.meta.CreationTimestamp.Time), Deleting: p.meta.DeletionTimestamp != nil,
	}
}

// decodeStatus returns the status, or an empty one if it cannot be decoded; the leader then rewrites it.
func (p *parsed) decodeStatus() *v1alpha1.ResponseSessionStatus {
	status := &v1alpha1.ResponseSessionStatus{}
	if p.status.IsObject() && json.Unmarshal(jsonvalue.Bytes(p.status.Raw), status) != nil {
		return &v1alpha1.ResponseSessionStatus{}
	}
	return status
}

// timeProblem describes why a time in a spec is invalid; it returns an empty string if the time is valid. The API server
// accepts times that metav1.Time rejects, and with it every Go client.
func timeProblem(name string, field gjson.Result) string {
	if field.Type == gjson.Null {
		return ""
	}
	if _, err := time.Parse(time.RFC3339, field.Str); err != nil {
		return fmt.Sprintf("`spec.%s` is not an RFC 3339 time", name)
	}
	return ""
}

// formatProblem describes why this build cannot read the formats in which a turn is stored; it returns an empty string if it
// can. An upgraded build may support them.
func formatProblem(format gjson.Result, ref *v1alpha1.SnapshotReference) string {
	if err := snapshot.CheckFormats("the operator", format.Int(), ref); err != nil {
		return err.Error()
	}
	return ""
}

// parseReference returns the reference to a snapshot, and a description of the problem if it is invalid. A reference that
// cannot be decoded keeps its key, so that the sweeper does not delete the snapshot.
func parseReference(reference gjson.Result) (*v1alpha1.SnapshotReference, string) {
	decoded := &v1alpha1.SnapshotReference{}
	if err := json.Unmarshal([]byte(reference.Raw), decoded); err != nil {
		fields := jsonvalue.Members(reference, "store", "key")
		decoded = &v1alpha1.SnapshotReference{Store: strings.Clone(fields[0].Str), Key: strings.Clone(fields[1].Str)}
		return decoded, "a number in `spec.snapshot` is out of range"
	}
	return decoded, ""
}

// body returns a body, nil if it is missing or null. It shares the memory of the object.
func body(raw string) []byte {
	if jsonvalue.IsNull(raw) {
		return nil
	}
	return jsonvalue.Bytes(raw)
}
