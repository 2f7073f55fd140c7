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
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Now returns the time of the API server, in seconds. All replicas of a program get the same time from it, however much their own clocks
// differ.
func Now(ctx context.Context, client rest.Interface) (time.Time, error) {
	now, err := dateOf(ctx, client)
	if err != nil {
		return time.Time{}, fmt.Errorf("unable to read the API server's time: %w", err)
	}
	return now, nil
}

// dateOf sends the request itself, because client-go does not return headers.
func dateOf(ctx context.Context, client rest.Interface) (time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.Get().AbsPath("/version").URL().String(), http.NoBody)
	if err != nil {
		return time.Time{}, err
	}
	httpClient := http.DefaultClient
	if c, ok := client.(*rest.RESTClient); ok && c.Client != nil {
		httpClient = c.Client
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	if err := response.Body.Close(); err != nil {
		return time.Time{}, err
	}
	if response.StatusCode != http.StatusOK { // perhaps from a load balancer
		return time.Time{}, fmt.Errorf("unexpected status %s", response.Status)
	}
	return http.ParseTime(response.Header.Get("Date"))
}
