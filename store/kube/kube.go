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

// Package kube keeps turns as ResponseSessions in a Kubernetes cluster that Catena's operator runs in.
//
// A turn is written to the kube-apiserver directly, so that saving does not depend on the operator; it resolves through
// the operator's API. A turn that is larger than Options.InlineBytes, or whose JSON a custom resource would not keep, is
// written to SnapshotChunks, or to a bucket, before its session is: a saver that ends in between leaves no half turn
// behind, but parts that the operator removes later.
//
// It needs the rights of the ClusterRole edit in its namespaces: create, get, update, patch and delete on
// responsesessions, create, get and delete on snapshotchunks, and get on
// inputitems.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store"
)

// The defaults of Options.
const (
	// DefaultInlineBytes is where bodies in the object are hardly faster any more than bodies outside of it, which take less
	// than half of the space: every write of a status rewrites the object. docs/architecture.md has the figures.
	DefaultInlineBytes  = 64 << 10
	DefaultMaxTurnBytes = 64 << 20
)

// maxInlineBytes keeps an object below what etcd takes, but for one with little else than numbers such as 1e20, which are
// written out.
const maxInlineBytes = 512 << 10

// maxDeleteTime is how long Delete waits for garbage collection, which takes a fraction of a second.
const maxDeleteTime = 30 * time.Second

// deletePolls returns how long Delete waits before it looks again: from 20 ms to half a second.
func deletePolls() wait.DelayFunc {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.2, Steps: 20, Cap: 500 * time.Millisecond}.DelayFunc()
}

// Options are the options of Open.
type Options struct {
	// Config is how the cluster is reached, with its bearer token or client certificate. Required.
	Config *rest.Config
	// Namespace is the store's namespace, which must exist. Required.
	Namespace string
	// ResolveHost, where set, is the address of the operator's Service, such as https://catena.catena-system.svc:443: the
	// histories then come from there, with the same credentials, and not through the kube-apiserver.
	ResolveHost string
	// ResolveTLS says how ResolveHost is recognised. It is ignored without that.
	ResolveTLS rest.TLSClientConfig
	// InlineBytes is how many bytes of request, response and metadata together are kept in the object, with what has to be
	// escaped there, at most 512 KiB; 0 is DefaultInlineBytes, and less than 0 keeps none.
	InlineBytes int
	// MaxTurnBytes is how many bytes request, response and metadata may have together. A larger turn is refused with
	// store.ErrTooLarge before anything is written. 0 is DefaultMaxTurnBytes.
	MaxTurnBytes int
	// SnapshotStore, where set, is the URL of a bucket that larger turns are written to, instead of SnapshotChunks. The
	// operator's --snapshot-store must be the same bucket. The driver of the URL's kind has to be linked in, for example
	// with a blank import of gocloud.dev/blob/s3blob.
	SnapshotStore string
}

// Store keeps turns in a cluster. See store.Store for what its methods promise.
type Store struct {
	*shared
	namespace string
	owner     bool // closes what is shared
}

var _ store.Store = &Store{}

// shared is what the stores of all namespaces have in common.
type shared struct {
	client       rest.Interface
	resolve      rest.Interface
	inlineBytes  int
	maxTurnBytes int
	// writes is where large turns go, and reads is all where they may be.
	writes snapshot.Store
	reads  snapshot.Stores

	closing    sync.Once
	closeReads func() error
}

// Open returns a store. It does not ask the cluster anything.
func Open(ctx context.Context, options Options) (*Store, error) {
	if options.Config == nil || options.Namespace == "" {
		return nil, errors.New("unable to open a store in a cluster: Config and Namespace are required")
	}
	client, err := kubeclient.New(options.Config)
	if err != nil {
		return nil, err
	}
	s := &shared{client: client, resolve: client, inlineBytes: options.InlineBytes, maxTurnBytes: options.MaxTurnBytes}
	if s.inlineBytes == 0 {
		s.inlineBytes = DefaultInlineBytes
	}
	if s.inlineBytes > maxInlineBytes {
		return nil, fmt.Errorf("unable to open a store in a cluster: InlineBytes is %d: must be at most %d", s.inlineBytes, maxInlineBytes)
	}
	if s.maxTurnBytes < 0 {
		return nil, fmt.Errorf("unable to open a store in a cluster: MaxTurnBytes is %d: must not be negative", s.maxTurnBytes)
	}
	if s.maxTurnBytes == 0 {
		s.maxTurnBytes = DefaultMaxTurnBytes
	}
	if options.ResolveHost != "" {
		config := rest.CopyConfig(options.Config)
		config.Host = options.ResolveHost
		tls := options.ResolveTLS
		tls.CertFile, tls.CertData = config.CertFile, config.CertData
		tls.KeyFile, tls.KeyData = config.KeyFile, config.KeyData
		config.TLSClientConfig = tls
		if s.resolve, err = kubeclient.New(config); err != nil {
			return nil, err
		}
	}
	if s.reads, s.closeReads, err = snapshot.Open(ctx, client, options.SnapshotStore); err != nil {
		return nil, err
	}
	s.writes = s.reads[len(s.reads)-1]
	return &Store{shared: s, namespace: options.Namespace, owner: true}, nil
}

// OpenURL returns the store that a URL names: kube: with the parameters namespace, kubeconfig, context, resolve-host,
// resolve-ca-file, snapshot-store, max-turn-bytes and inline-bytes, all of them optional. Without a kubeconfig it is the cluster that the process runs
// in, or that of the environment's KUBECONFIG; without a namespace that of the context or the Pod.
func OpenURL(ctx context.Context, rawURL string) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("unable to open a store in a cluster: its URL cannot be read")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("unable to open a store in a cluster: the parameters of its URL cannot be read")
	}
	for key := range query {
		switch key {
		case "namespace", "kubeconfig", "context", "resolve-host", "resolve-ca-file", "snapshot-store", "max-turn-bytes", "inline-bytes":
		default:
			return nil, fmt.Errorf("unable to open a store in a cluster: unknown parameter %q", key)
		}
	}
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.Fragment != "" {
		return nil, errors.New("unable to open a store in a cluster: its URL must be kube: and parameters")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = query.Get("kubeconfig")
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: query.Get("context")})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("unable to find the cluster: %w", err)
	}
	namespace := query.Get("namespace")
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("unable to find the namespace: %w", err)
		}
	}
	options := Options{
		Config: config, Namespace: namespace, SnapshotStore: query.Get("snapshot-store"),
		ResolveHost: query.Get("resolve-host"), ResolveTLS: rest.TLSClientConfig{CAFile: query.Get("resolve-ca-file")},
	}
	for key, option := range map[string]*int{"max-turn-bytes": &options.MaxTurnBytes, "inline-bytes": &options.InlineBytes} {
		if !query.Has(key) {
			continue
		}
		if *option, err = strconv.Atoi(query.Get(key)); err != nil {
			return nil, fmt.Errorf("unable to open a store in a cluster: %s must be a number", key)
		}
	}
	return Open(ctx, options)
}

// Namespace returns the store's namespace.
func (s *Store) Namespace() string { return s.namespace }

// InNamespace returns the store of another namespace, which must exist.
func (s *Store) InNamespace(namespace string) store.Store {
	return &Store{shared: s.shared, namespace: namespace}
}

// Close closes the bucket, if there is one.
func (s *Store) Close() error {
	var err error
	if s.owner {
		s.closing.Do(func() { err = s.closeReads() })
	}
	return err
}

// Get returns a turn.
func (s *Store) Get(ctx context.Context, responseID string) (*store.Session, error) {
	return retry(ctx, func() (*store.Session, error) { return s.get(ctx, responseID) })
}

func (s *Store) get(ctx context.Context, responseID string) (*store.Session, error) {
	for {
		object, err := s.getObject(ctx, responseID)
		if err != nil {
			return nil, err
		}
		session, err := s.stored(ctx, object)
		if errors.Is(err, store.ErrUnreadable) {
			// It may have been overwritten, and its old snapshot removed, while it was read.
			current, currentErr := s.getObject(ctx, responseID)
			if currentErr != nil {
				return nil, currentErr
			}
			if !sameSpec(object, current) {
				continue
			}
		}
		return session, err
	}
}

// Delete removes a turn and, where that is asked for, lets garbage collection remove its descendants. Where they are to
// stay, garbage collection takes the turn's ownerReferences off them first, and Delete waits until it has.
//
// A descendant that is saved within the same few milliseconds may be deleted too: see Save.
func (s *Store) Delete(ctx context.Context, responseID string, options store.DeleteOptions) error {
	if responseID == "" {
		return nil
	}
	deleted, err := retry(ctx, func() (*v1alpha1.ResponseSession, error) { return s.delete(ctx, responseID, options) })
	if err != nil || deleted == nil {
		return err
	}
	if err := s.waitUntilGone(ctx, responseID); err != nil {
		return err
	}
	if options.Cascade || deleted.Spec.Snapshot == nil {
		return nil
	}
	// Of a turn that was deleted without its dependents, the snapshot is one.
	if err := s.reads.Delete(ctx, s.place(responseID), deleted.Spec.Snapshot); err != nil {
		return toError(ctx, responseID, "unable to delete the bodies of the turn", err)
	}
	return nil
}

// delete returns the turn where it is still to be let go of, and nil where it is gone.
func (s *Store) delete(ctx context.Context, responseID string, options store.DeleteOptions) (*v1alpha1.ResponseSession, error) {
	policy := metav1.DeletePropagationOrphan
	if options.Cascade {
		policy = metav1.DeletePropagationBackground
	}
	// The answer is the turn or, where it is gone, a status.
	answer, err := s.client.Delete().Namespace(s.namespace).Resource(kubeclient.Sessions).Name(v1alpha1.ObjectName(responseID)).
		Body(&metav1.DeleteOptions{PropagationPolicy: &policy}).Do(ctx).Get()
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, toError(ctx, responseID, "unable to delete the turn", err)
	}
	deleted, _ := answer.(*v1alpha1.ResponseSession)
	return deleted, nil
}

// waitUntilGone waits until garbage collection has let go of a turn that is being deleted.
func (s *Store) waitUntilGone(ctx context.Context, responseID string) error {
	var last error
	limited, cancel := context.WithTimeout(ctx, maxDeleteTime)
	defer cancel()
	err := deletePolls().Until(limited, true, true, func(ctx context.Context) (bool, error) {
		object := &metav1.PartialObjectMetadata{}
		last = s.client.Get().Namespace(s.namespace).Resource(kubeclient.Sessions).Name(v1alpha1.ObjectName(responseID)).
			SetHeader("Accept", kubeclient.MetadataOnly).Do(ctx).Into(object)
		switch {
		case apierrors.IsNotFound(last):
			return true, nil
		case last != nil && !isUnreachable(last):
			return false, last
		}
		return last == nil && object.DeletionTimestamp == nil, nil // it was saved again
	})
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && wait.Interrupted(err) {
		return &store.Error{
			Code: store.CodeUnreachable, ResponseID: responseID, Retryable: true, Err: last,
			Message: fmt.Sprintf("response %q is being deleted, but garbage collection has not let go of it", responseID),
		}
	}
	return toError(ctx, responseID, "unable to see whether the turn is deleted", err)
}

// getObject returns the object of a turn, and an error that is store.ErrNotFound where there is none, or it is being
// deleted.
func (s *Store) getObject(ctx context.Context, responseID string) (*v1alpha1.ResponseSession, error) {
	object := &v1alpha1.ResponseSession{}
	var err error
	if responseID != "" {
		err = s.client.Get().Namespace(s.namespace).Resource(kubeclient.Sessions).Name(v1alpha1.ObjectName(responseID)).Do(ctx).Into(object)
	}
	// Where a name is the hash of another ID, as the controller reports, it is not this turn.
	if responseID == "" || apierrors.IsNotFound(err) ||
		err == nil && (object.Spec.ResponseID != responseID || object.DeletionTimestamp != nil) {
		return nil, notFound(responseID, "")
	}
	if err != nil {
		return nil, toError(ctx, responseID, "unable to read the turn", err)
	}
	return object, nil
}

// sameSpec reports whether a turn, nil where there is none, was neither overwritten nor deleted between two reads.
func sameSpec(a, b *v1alpha1.ResponseSession) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.Generation == b.Generation
}
