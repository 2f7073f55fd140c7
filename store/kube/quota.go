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
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store/driver"
)

var _ driver.QuotaChecker = (*cluster)(nil)

// CheckQuota implements driver.QuotaChecker for SessionQuotas. A ResourceQuota is only enforced when the turn is saved.
func (c *cluster) CheckQuota(ctx context.Context, namespace string) error {
	quotas := &v1alpha1.SessionQuotaList{}
	if err := kubeclient.List(ctx, c.client, kubeclient.Quotas, namespace, quotas); err != nil {
		return toError(ctx, "", fmt.Sprintf("read the quotas of namespace %q", namespace), err)
	}
	for _, quota := range quotas.Items {
		if quota.IsExceeded() {
			return &driver.Error{
				Code: driver.CodeQuotaExceeded,
				Message: fmt.Sprintf("SessionQuota %s of namespace %q is exceeded: %s of %s bytes are used",
					quota.Name, namespace, quota.Status.Used.Bytes.String(), quota.Spec.Hard.Bytes.String()),
			}
		}
	}
	return nil
}

// checkQuota returns an error if a SessionQuota of a namespace is exceeded. It is called before a snapshot is written: the API
// server would reject its chunks and its session, but has no control over a bucket. An error while reading the quotas does not
// prevent the save, because the API server enforces them for the session.
func (c *cluster) checkQuota(ctx context.Context, namespace, responseID string) error {
	if err := c.CheckQuota(ctx, namespace); errors.Is(err, driver.ErrQuotaExceeded) {
		return &driver.Error{Code: driver.CodeQuotaExceeded, ResponseID: responseID, Message: quotaMessage(responseID), Err: err}
	}
	return nil
}

func quotaMessage(responseID string) string {
	return fmt.Sprintf("response %q cannot be stored, because the quota of its namespace is exceeded", responseID)
}

// isQuotaExceeded reports whether the API server has rejected a request because of a SessionQuota or a ResourceQuota. A
// rejection by the ResourceQuota admission plugin can only be recognised by its message.
func isQuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) &&
		(strings.Contains(err.Error(), string(driver.CodeQuotaExceeded)) || strings.Contains(err.Error(), "exceeded quota: "))
}
