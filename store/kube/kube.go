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

// Package kube stores turns as ResponseSessions in a Kubernetes cluster in which Catena's operator runs, and conversations as Conversations.
//
// A turn is written to the kube-apiserver directly, so that saving does not depend on the operator; it is resolved, and
// conversations are listed, through the operator's API. Its bodies are compressed, and returned exactly as they were saved. If they are larger than Options.InlineBytes,
// they are written to SnapshotChunks or to a bucket before the session: a process that stops in between does not leave a partial
// turn, only chunks that the operator removes later.
//
// In a Pod, it resolves directly from the operator's Service while that can be reached: see Options.ResolveHost.
//
// It needs the permissions of the ClusterRole edit in its namespaces: create, get, patch and delete on responsesessions, with list for Delete with
// Cascade; create, get and delete on snapshotchunks; list on sessionquotas; and get on inputitems and conversationturns. For conversations, it needs
// create, get, patch and delete on conversations, create, get and list on conversationsummaries, and get on conversationlists.
//
// Importing the package is enough to open URLs with the scheme kube: with store.Open. All parameters are optional:
//
//	namespace        default: that of the context or the Pod
//	kubeconfig       default: the Pod's service account, else the file that KUBECONFIG names, else ~/.kube/config
//	context          of the kubeconfig
//	resolve-host     Options.ResolveHost
//	resolve-ca-file  Options.ResolveTLS.CAFile
//	snapshot-store   Options.SnapshotStore
//	max-turn-bytes   Options.MaxTurnBytes
//	inline-bytes     Options.InlineBytes
//	max-requests     Options.MaxRequests
package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/requests"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

// The defaults of Options.
const (
	// DefaultInlineBytes is 128 KiB: see docs/decisions/inline-limit.md.
	DefaultInlineBytes = 128 << 10
	// DefaultMaxTurnBytes is 64 MiB.
	DefaultMaxTurnBytes = 64 << 20
	// DefaultMaxRequests is 64.
	DefaultMaxRequests = 64
)

// Options are the options of Open.
type Options struct {
	// Config defines how to reach the cluster, with a bearer token or client certificate. Required.
	Config *rest.Config
	// Namespace is the store's namespace, which must exist. Required.
	Namespace string
	// ResolveHost, if set, is the address of the operator's Service, such as https://catena.catena-system.svc:443: histories
	// are then read from it directly instead of through the kube-apiserver, with the same credentials. If it is not set, a store in
	// a Pod with a token finds the Service in the APIService, and uses it as long as it accepts connections. To always read histories
	// through the kube-apiserver, set the address of that, and its CA in ResolveTLS.
	ResolveHost string
	// ResolveTLS defines how ResolveHost is authenticated. It is ignored without ResolveHost.
	ResolveTLS rest.TLSClientConfig
	// InlineBytes is the maximum size of request, response and metadata together, before they are compressed, for a turn that is
	// stored in its object: at most v1alpha1.MaxPackedBytes. 0 means DefaultInlineBytes; with a negative value, no bodies are stored
	// in objects.
	InlineBytes int
	// MaxTurnBytes is the maximum size of request, response and metadata together. A larger turn is refused with
	// store.ErrTooLarge before anything is written. 0 means DefaultMaxTurnBytes.
	MaxTurnBytes int
	// MaxRequests is the maximum number of writes to the API server, of reads, and of resolves, that are in progress at once; others
	// wait. All namespaces of the store share each: one alone uses at most half, so that it does not delay others. Fewer writes are
	// in progress after the API server has refused some. Chunks are not counted: at most three are written, and three read, at
	// once. At least 2; 0 means DefaultMaxRequests.
	MaxRequests int
	// SnapshotStore, if set, is the URL of a bucket that larger turns are written to, instead of SnapshotChunks. The
	// operator's --snapshot-store must be the same bucket. The driver of the URL's scheme must be linked in, for example
	// with a blank import of gocloud.dev/blob/s3blob.
	SnapshotStore string
}

// Open returns a store. It does not contact the cluster: store.Store.Check does.
func Open(ctx context.Context, options Options) (*store.Store, error) {
	d, common, err := openDriver(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("unable to open the kube store: %w", err)
	}
	return store.New(d, common), nil
}

var _ driver.Checker = (*cluster)(nil)

// cluster is a driver that stores turns in a cluster.
type cluster struct {
	client       rest.Interface
	resolve      rest.Interface
	inlineBytes  int
	maxTurnBytes int
	// slow is the duration of a save after which the parts of its snapshot are checked once more before the turn is
	// acknowledged.
	slow time.Duration
	// writes is the store for new snapshots, and reads finds snapshots in every place where they may be.
	writes     snapshot.Store
	reads      snapshot.Stores
	closeReads func() error
}

func openDriver(ctx context.Context, options Options) (driver.Store, driver.Options, error) {
	if err := options.complete(); err != nil {
		return nil, driver.Options{}, err
	}
	options.Config = new(settling).watch(options.Config)
	limits := requests.Limits{Writes: int64(options.MaxRequests), Reads: int64(options.MaxRequests)}
	c := &cluster{inlineBytes: options.InlineBytes, maxTurnBytes: options.MaxTurnBytes, slow: snapshot.MaxWriteTime}
	var err error
	if c.client, err = kubeclient.New(requests.NewLimiter(limits).Limit(options.Config)); err != nil {
		return nil, driver.Options{}, err
	}
	// Resolves have limits of their own: saves must not wait for a slow operator.
	if c.resolve, err = kubeclient.New(requests.NewLimiter(limits).Limit(options.resolveConfig(c.client))); err != nil {
		return nil, driver.Options{}, err
	}
	// The store of chunks has its own limits, and must not wait for others while it holds a part of them.
	chunks, err := kubeclient.New(options.Config)
	if err != nil {
		return nil, driver.Options{}, err
	}
	if c.reads, c.closeReads, err = snapshot.Open(ctx, chunks, options.SnapshotStore); err != nil {
		return nil, driver.Options{}, err
	}
	c.writes = c.reads[len(c.reads)-1]
	return c, driver.Options{Namespace: options.Namespace, MaxTurnBytes: options.MaxTurnBytes}, nil
}

// complete sets the defaults and checks the options.
func (o *Options) complete() error {
	if o.InlineBytes == 0 {
		o.InlineBytes = DefaultInlineBytes
	}
	if o.MaxTurnBytes == 0 {
		o.MaxTurnBytes = DefaultMaxTurnBytes
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = DefaultMaxRequests
	}
	switch {
	case o.Config == nil || o.Namespace == "":
		return errors.New("the options Config and Namespace are required")
	case o.InlineBytes > v1alpha1.MaxPackedBytes:
		return fmt.Errorf("InlineBytes (inline-bytes in a URL) is %d: must be at most %d", o.InlineBytes, v1alpha1.MaxPackedBytes)
	case o.MaxTurnBytes < 0:
		return fmt.Errorf("MaxTurnBytes (max-turn-bytes in a URL) is %d: must not be negative", o.MaxTurnBytes)
	case o.MaxRequests < 2:
		return fmt.Errorf("MaxRequests (max-requests in a URL) is %d: must be at least 2", o.MaxRequests)
	}
	return nil
}

// resolveConfig returns the configuration of the client for resolves.
func (o *Options) resolveConfig(client rest.Interface) *rest.Config {
	config := rest.CopyConfig(o.Config)
	switch {
	case o.ResolveHost == "" && routable(config):
		return routed(config, client)
	case o.ResolveHost == "":
		return config
	}
	config.Host = o.ResolveHost
	tls := o.ResolveTLS
	tls.CertFile, tls.CertData = config.CertFile, config.CertData
	tls.KeyFile, tls.KeyData = config.KeyFile, config.KeyData
	config.TLSClientConfig = tls
	return config
}

// checkTimeout is the deadline of Check.
const checkTimeout = 10 * time.Second

// Check implements driver.Checker: it returns an error that is not retryable only if the bucket belongs to another cluster.
func (c *cluster) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.writes.Check(ctx)
	if err == nil || errors.Is(err, snapshot.ErrForeign) {
		return err
	}
	return &driver.Error{
		Code: driver.CodeUnreachable, Retryable: true, Message: "unable to determine whether the bucket belongs to this cluster", Err: err,
	}
}

// Close closes the bucket, if there is one.
func (c *cluster) Close() error { return c.closeReads() }

// Get implements driver.Store.
func (c *cluster) Get(ctx context.Context, namespace, responseID string) (*driver.Session, error) {
	turn, err := c.read(ctx, namespace, responseID)
	if err != nil {
		return nil, again(err)
	}
	return turn.Session, nil
}

// read reads a turn, without retries.
func (c *cluster) read(ctx context.Context, namespace, responseID string) (*local.Session, error) {
	for {
		object, err := c.getObject(ctx, namespace, responseID)
		if err != nil {
			return nil, err
		}
		session, err := c.stored(ctx, object)
		if errors.Is(err, driver.ErrUnreadable) {
			// The turn may have been overwritten, and its old snapshot removed, while it was read.
			current, currentErr := c.getObject(ctx, namespace, responseID)
			if currentErr != nil {
				return nil, currentErr
			}
			if !sameSpec(object, current) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		return &local.Session{Session: session, UID: string(object.UID)}, nil
	}
}

// getObject returns the object of a turn. The error is driver.ErrNotFound if it does not exist or is being deleted.
func (c *cluster) getObject(ctx context.Context, namespace, responseID string) (*v1alpha1.ResponseSession, error) {
	object := &v1alpha1.ResponseSession{}
	err := kubeclient.Get(ctx, c.client, kubeclient.Sessions, objectName(namespace, responseID), object)
	// If the name is the hash of another ID, which the controller reports, the object does not belong to this turn.
	if isGone(err, namespace, responseID) || err == nil && (object.Spec.ResponseID != responseID || object.DeletionTimestamp != nil) {
		return nil, driver.NotFound(responseID)
	}
	if err != nil {
		return nil, toError(ctx, responseID, "", err)
	}
	return object, nil
}

// sameSpec reports whether a turn was neither overwritten nor deleted between two reads. A nil object means that it did not
// exist.
func sameSpec(a, b *v1alpha1.ResponseSession) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.Generation == b.Generation
}
