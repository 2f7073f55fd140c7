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

// Package certificates keeps the serving certificate of the resolve API: it issues and renews it, shares it among the replicas
// through a Secret, and makes the APIService trust it.
package certificates

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

// fieldOwner is the field manager of the Secret and of the APIService's caBundle.
const fieldOwner = client.FieldOwner("catena-certificates")

// An APIService with this annotation and value has its caBundle from elsewhere: from cert-manager or from the values of the chart. During
// the rollout that changes the mode, replicas that still keep certificates leave it alone.
const (
	caBundleAnnotation = "sessions.catena.dev/ca-bundle"
	caBundleExternal   = "external"
)

// The time between two looks at the Secret and the APIService. The minimum is the precision of the API server's time.
const (
	minInterval = time.Second
	maxInterval = 10 * time.Second
)

// Keeper keeps a serving certificate in a Secret, together with its successor when it is due for renewal. Every replica runs one,
// and they agree through the Secret's resourceVersion. All of them go by the API server's clock.
//
// A client must never meet a certificate whose CA it does not trust. So a new CA is published in the APIService for the overlap before its
// certificate is used, and an old one for the overlap after that.
type Keeper struct {
	options Options
	client  client.Client
	now     func(context.Context) (time.Time, error)
	served  *content
	known   state

	expiry, lastCheck prometheus.Gauge
}

// New returns a Keeper with valid options. The client must not read from a cache; now returns the API server's time.
func New(o Options, c client.Client, now func(context.Context) (time.Time, error)) *Keeper {
	return &Keeper{
		options: o, client: c, now: now,
		served: &content{ready: make(chan struct{})},
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "catena_serving_certificate_expiry_timestamp_seconds",
			Help: "Time at which the certificate expires that the operator has issued for the resolve API.",
		}),
		lastCheck: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "catena_serving_certificate_last_check_timestamp_seconds",
			Help: "Time at which the operator last found its certificate and the CAs in the APIService in order, or put them in order.",
		}),
	}
}

// Content returns the certificate in use, which changes. It is empty until Ready.
func (k *Keeper) Content() dynamiccertificates.CertKeyContentProvider { return k.served }

// Ready is closed when there is a certificate.
func (k *Keeper) Ready() <-chan struct{} { return k.served.ready }

// Metrics returns the metrics of the certificate.
func (k *Keeper) Metrics() []prometheus.Collector {
	return []prometheus.Collector{k.expiry, k.lastCheck}
}

// Run keeps the certificate until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	logger := log.FromContext(ctx).WithName("certificates").WithValues("secret", k.options.Secret)
	ctx = log.IntoContext(ctx, logger)
	var last string
	for {
		err := k.sync(ctx)
		interval := k.interval()
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != last {
			logger.Error(err, "Unable to keep the serving certificate; trying again", "interval", interval)
		}
		if last = ""; err != nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// interval is the time until the next look: a small part of the overlap, and of the lifetime of the certificate in use, which may have
// been issued with other options.
func (k *Keeper) interval() time.Duration {
	interval := min(maxInterval, k.options.Overlap/5)
	if current := k.known.current; current != nil {
		interval = min(interval, current.leaf.NotAfter.Sub(current.issued())/30)
	}
	return max(interval, minInterval)
}

// The rights for this are in config/rbac/certificates_role.yaml, because an operator whose certificate comes from elsewhere must not have them.

// sync takes a step, and another one if a replica was faster.
func (k *Keeper) sync(ctx context.Context) error {
	faster := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultRetry, faster, func() error { return k.step(ctx) })
}

// step stores the state that follows the stored one, publishes its CAs, and then uses its certificate.
func (k *Keeper) step(ctx context.Context) error {
	now, err := k.now(ctx)
	if err != nil {
		return err
	}
	service, err := k.apiService(ctx)
	if err != nil {
		return err
	}
	s, err := k.store(ctx, trustedCAs(service, now), now)
	if err != nil {
		return err
	}
	if err := k.publish(ctx, service, s.bundle()); err != nil {
		return err
	}
	if !k.known.current.equal(s.current) {
		log.FromContext(ctx).Info("Using another serving certificate", "notAfter", s.current.leaf.NotAfter)
	}
	k.known = s
	k.expiry.Set(float64(s.current.leaf.NotAfter.Unix()))
	k.lastCheck.Set(float64(now.Unix()))
	k.served.set(s.current)
	return nil
}

// store returns the next state after it has been stored.
func (k *Keeper) store(ctx context.Context, trusted []*x509.Certificate, now time.Time) (state, error) {
	secret := &corev1.Secret{}
	err := k.client.Get(ctx, k.options.secret(), secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return state{}, fmt.Errorf("unable to read the Secret: %w", err)
	}
	s, err := k.options.step(readState(secret, now), k.known, trusted, now)
	if err != nil {
		return state{}, fmt.Errorf("unable to issue a certificate: %w", err)
	}
	if !s.write(secret) {
		return s, nil
	}
	if missing {
		secret.Namespace, secret.Name, secret.Type = k.options.secret().Namespace, k.options.secret().Name, corev1.SecretTypeTLS
		secret.Labels = map[string]string{"app.kubernetes.io/name": "catena"}
		err = k.client.Create(ctx, secret, fieldOwner)
	} else {
		err = k.client.Update(ctx, secret, fieldOwner)
	}
	if err != nil {
		return state{}, fmt.Errorf("unable to write the Secret: %w", err)
	}
	return s, nil
}

// apiService returns the APIService, or nil if it is not installed.
func (k *Keeper) apiService(ctx context.Context) (*unstructured.Unstructured, error) {
	service := newAPIService()
	if err := k.client.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("unable to read the APIService: %w", err)
	}
	return service, nil
}

// publish makes the kube-apiserver and clients in the cluster, which read the APIService too, trust the CAs. Without an
// APIService, it does nothing.
func (k *Keeper) publish(ctx context.Context, service *unstructured.Unstructured, bundle []byte) error {
	value := base64.StdEncoding.EncodeToString(bundle)
	if service == nil || isExternal(service) || caBundle(service) == value {
		return nil
	}
	apply := newAPIService()
	// Never create one, and never overwrite what another replica has published since.
	apply.SetUID(service.GetUID())
	apply.SetResourceVersion(service.GetResourceVersion())
	if err := unstructured.SetNestedField(apply.Object, value, caBundleField...); err != nil {
		return err
	}
	if err := k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("unable to write the caBundle of the APIService: %w", err)
	}
	return nil
}

var caBundleField = []string{"spec", "caBundle"}

func caBundle(service *unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedString(service.Object, caBundleField...) // an unreadable one is replaced
	return value
}

// isExternal reports whether something else writes the caBundle.
func isExternal(service *unstructured.Unstructured) bool {
	return service.GetAnnotations()[caBundleAnnotation] == caBundleExternal
}

// trustedCAs returns the CAs that an APIService trusts, if they are the keepers'.
func trustedCAs(service *unstructured.Unstructured, now time.Time) []*x509.Certificate {
	if service == nil || isExternal(service) {
		return nil
	}
	bundle, err := base64.StdEncoding.DecodeString(caBundle(service))
	if err != nil {
		return nil
	}
	return parseCAs(bundle, now)
}

func newAPIService() *unstructured.Unstructured {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	service.SetName(resolvev1alpha1.GroupVersion.Version + "." + resolvev1alpha1.GroupVersion.Group)
	return service
}

// content is the certificate in use.
type content struct {
	ready chan struct{} // closed when there is one

	mu        sync.Mutex
	pair      *pair
	listeners []dynamiccertificates.Listener
}

var (
	_ dynamiccertificates.CertKeyContentProvider = &content{}
	_ dynamiccertificates.Notifier               = &content{}
)

// Name returns a name for logs.
func (*content) Name() string { return "serving-secret" }

// CurrentCertKeyContent returns the certificate and the key in PEM.
func (c *content) CurrentCertKeyContent() ([]byte, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair == nil {
		return nil, nil
	}
	return c.pair.cert, c.pair.key
}

// AddListener adds a listener for changes.
func (c *content) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

func (c *content) set(p *pair) {
	c.mu.Lock()
	listeners, first, changed := c.listeners, c.pair == nil, !c.pair.equal(p)
	c.pair = p
	c.mu.Unlock()
	if first {
		close(c.ready)
	}
	if changed {
		for _, listener := range listeners {
			listener.Enqueue()
		}
	}
}
