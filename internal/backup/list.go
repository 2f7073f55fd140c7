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

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
)

const (
	// pageSize is the number of sessions that the API server returns at once: at most about 16 MB, if the library has saved them.
	pageSize = 100
	// maxLists is how often a list is begun, in case it takes longer than etcd keeps its version: five minutes by default.
	maxLists = 3
)

// list adds all sessions of a namespace to a spool, as they were at one resource version, except those that are being deleted.
func (c *Cluster) list(ctx context.Context, namespace string, into *spool) error {
	for attempt := 1; ; attempt++ {
		err := c.listOnce(ctx, namespace, into)
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		if expired && attempt == maxLists {
			return fmt.Errorf("the list of the sessions took longer than the API server keeps its version, %d times: "+
				"run the export nearer to it, or with a longer --etcd-compaction-interval of the kube-apiserver: %w", maxLists, err)
		}
		if !expired {
			return err
		}
	}
}

func (c *Cluster) listOnce(ctx context.Context, namespace string, into *spool) error {
	if err := into.reset(); err != nil {
		return err
	}
	step, end := c.Progress("list", -1)
	defer end()
	for next, more := "", true; more; {
		var failed error
		request := c.client.Get().Namespace(namespace).Resource(kubeclient.Sessions).Param("limit", strconv.Itoa(pageSize)).Param("continue", next)
		page, err := kubeclient.StreamList(ctx, request, func(object gjson.Result) {
			if failed == nil {
				failed = addObject(into, object)
				step()
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("unable to list the sessions of namespace %s: %w", namespace, err)
		}
		next, more = page.Continue, page.Continue != ""
	}
	return into.flush()
}

// addObject adds an object of a list to a spool.
func addObject(into *spool, object gjson.Result) error {
	session, deleting, err := newSession(object.Raw)
	if err != nil || deleting {
		return err
	}
	t, err := parseTurn(session.Spec)
	if err != nil {
		return named(session.Name, err)
	}
	parent := ""
	if t.previous != "" && v1alpha1.ObjectName(t.responseID) == session.Name {
		parent = v1alpha1.ObjectName(t.previous)
	}
	return into.add(session, parent)
}

// newSession returns the session for an object as the API server sends it, and whether it is being deleted.
func newSession(object string) (s *Session, deleting bool, err error) {
	fields := jsonvalue.RawMembers(object, "metadata", "spec")
	s = &Session{Spec: json.RawMessage(fields[1])}
	var metadata struct {
		Name                string
		Labels, Annotations map[string]string
		DeletionTimestamp   *string
	}
	if err := json.Unmarshal([]byte(fields[0]), &metadata); err != nil {
		return nil, false, fmt.Errorf("unable to decode the metadata of a session: %w", err)
	}
	s.Name, s.Labels, s.Annotations = metadata.Name, metadata.Labels, metadata.Annotations
	return s, metadata.DeletionTimestamp != nil, nil
}
