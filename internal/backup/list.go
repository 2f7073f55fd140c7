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
	"errors"
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

const (
	// pageSize is the number of objects that the API server returns at once: at most about 16 MB, if the library has saved them.
	pageSize = 100
	// maxLists is how often a list is begun, in case it takes longer than etcd keeps its version: five minutes by default.
	maxLists = 3
)

// list adds all objects of a spool's kind in a namespace, as they were at one resource version, except those that are being deleted.
func (c *Cluster) list(ctx context.Context, namespace string, into *spool) error {
	for attempt := 1; ; attempt++ {
		err := c.listOnce(ctx, namespace, into)
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		if expired && attempt == maxLists {
			return fmt.Errorf("the list of the %s took longer than the API server keeps its version, %d times: "+
				"run the export nearer to it, or with a longer --etcd-compaction-interval of the kube-apiserver: %w", kinds[into.kind].resource, maxLists, err)
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
		request := c.client.Get().Namespace(namespace).Resource(kinds[into.kind].resource).Param("limit", strconv.Itoa(pageSize)).Param("continue", next)
		page, err := kubeclient.StreamList(ctx, request, func(object gjson.Result) {
			if failed == nil {
				failed = c.addObject(into, object.Raw)
				step()
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("unable to list the %s of namespace %s: %w", kinds[into.kind].resource, namespace, err)
		}
		next, more = page.Continue, page.Continue != ""
	}
	return into.flush()
}

// addObject adds an object of a list to a spool. A conversation or a summary that cannot be decoded is reported and left out.
func (c *Cluster) addObject(into *spool, text string) error {
	o, err := newObject(into.kind, text)
	if err != nil || o.deleting {
		return err
	}
	switch err := o.parse(c.MaxTurnBytes); {
	case err != nil && o.kind == sessionKind:
		return o.named(err)
	case err != nil:
		into.unreadable++
		c.Problem(o.label(), "left out: "+err.Error())
		return nil //nolint:nilerr // the problem is reported
	case o.isDeleting():
		return nil
	}
	return into.add(o, o.link())
}

// link returns what a spool keeps about an object of the API server besides its name.
func (o *Object) link() string {
	switch {
	case o.kind == conversationKind:
		return string(o.uid)
	case o.kind == summaryKind:
		return string(o.owner)
	case o.parsed.parentID == "" || o.misnamed():
		return ""
	}
	return v1alpha1.ObjectName(o.parsed.parentID)
}
