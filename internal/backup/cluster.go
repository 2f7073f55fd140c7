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
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/requests"
	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/internal/snapshot"
)

// DefaultConcurrency is 8, and DefaultAPITimeout is 2 minutes.
const (
	DefaultConcurrency = 8
	DefaultAPITimeout  = 2 * time.Minute
)

// Options are the options of Open.
type Options struct {
	// Config defines how to reach the cluster. Required.
	Config *rest.Config
	// SnapshotStore, if set, is the URL of the bucket of the operator's --snapshot-store. Snapshots in it can then be exported, and an
	// import writes to it instead of to chunks.
	SnapshotStore string
	// MaxTurnBytes is the maximum size of the bodies of a session together, which are in memory. At least 1.
	MaxTurnBytes int
	// Concurrency is the number of objects that are created or verified at once. At least 1.
	Concurrency int
	// APITimeout is the time after which a request ends with an error if the API server sends nothing. Positive. A request ends after
	// silence.MaxResponseTime in any case.
	APITimeout time.Duration
	// Progress, if set, is called at the beginning of each phase, with the number of its objects, or -1 if that is unknown. It returns
	// functions to be called after each object, possibly concurrently, and at the end.
	Progress func(phase string, objects int) (step, end func())
	// Problem is called, possibly concurrently, for each object that is not exported or imported as it should be. Required.
	Problem func(object, problem string)
}

// Cluster exports and imports the sessions and the conversations of the namespaces of a cluster.
type Cluster struct {
	Options
	client rest.Interface
	stores snapshot.Stores
	close  func() error
}

// Open returns a Cluster. It does not contact it.
func Open(ctx context.Context, options Options) (*Cluster, error) {
	switch {
	case options.MaxTurnBytes < 1:
		return nil, fmt.Errorf("--max-turn-bytes is %d: must be at least 1", options.MaxTurnBytes)
	case options.Concurrency < 1:
		return nil, fmt.Errorf("--concurrency is %d: must be at least 1", options.Concurrency)
	case options.APITimeout <= 0:
		return nil, fmt.Errorf("--api-timeout is %s: must be positive", options.APITimeout)
	}
	options.Config = silence.Limit(options.Config, options.APITimeout)
	if options.Progress == nil {
		options.Progress = func(string, int) (step, end func()) { return func() {}, func() {} }
	}
	c := &Cluster{Options: options}
	// One namespace may use half of each limit.
	limits := requests.Limits{Writes: 2 * int64(options.Concurrency), Reads: 2 * int64(options.Concurrency)}
	var err error
	if c.client, err = kubeclient.New(requests.NewLimiter(limits).Limit(options.Config)); err != nil {
		return nil, err
	}
	chunks, err := kubeclient.New(options.Config) // with limits of its own
	if err != nil {
		return nil, err
	}
	c.stores, c.close, err = snapshot.Open(ctx, chunks, options.SnapshotStore)
	return c, err
}

// Close closes the bucket, if there is one.
func (c *Cluster) Close() error { return c.close() }

// object returns an object whose spec is not parsed yet, or nil if it does not exist.
func (c *Cluster) object(ctx context.Context, kind kind, name types.NamespacedName) (*Object, error) {
	text, err := kubeclient.GetRaw(ctx, c.client, kinds[kind].resource, name)
	if kubeclient.IsGone(err, kinds[kind].resource, name.Name) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newObject(kind, jsonvalue.Text(text))
}

// read returns the bodies of a snapshot. The problem is why they cannot be read, if nothing but the snapshot is the reason.
func (c *Cluster) read(ctx context.Context, name types.NamespacedName, ref *v1alpha1.SnapshotReference) (bodies *Bodies, problem string, err error) {
	if !snapshot.Within(ref, c.MaxTurnBytes) {
		return nil, fmt.Sprintf("its bodies have %d bytes, more than --max-turn-bytes, or a size that is wrong", ref.SizeBytes), nil
	}
	read, err := c.stores.ReadCurrent(ctx, name, ref)
	if errors.Is(err, snapshot.ErrUnreadable) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	return new(Bodies(read)), "", nil
}
