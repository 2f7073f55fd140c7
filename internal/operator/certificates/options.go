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

package certificates

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
)

// minOverlap is a few times the second in which the API server tells its time.
const minOverlap = 5 * time.Second

// Options are the options of a Keeper. Use NewOptions.
type Options struct {
	// Secret is the NAMESPACE/NAME of the Secret that has the certificate; empty for no Keeper.
	Secret string
	// Service is the Service, in the namespace of the Secret, that the certificate is for.
	Service string
	// Lifetime is how long a certificate is valid. It is renewed after two thirds of that.
	Lifetime time.Duration
	// Overlap is how long the CAs of both certificates are trusted before a new one is used, and after that. It is at most a
	// sixth of Lifetime.
	Overlap time.Duration
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{Service: "catena-resolve", Lifetime: 90 * 24 * time.Hour, Overlap: time.Hour}
}

// AddFlags adds the flags to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Secret, "serving-secret", o.Secret,
		"NAMESPACE/NAME of a Secret in which the operator keeps a serving certificate that it issues and renews itself, and whose CA it writes to the APIService. "+
			"Empty to use --tls-cert-file and --tls-private-key-file.")
	fs.StringVar(&o.Service, "serving-service", o.Service, "Service, in the namespace of --serving-secret, that the certificate is issued for.")
	fs.DurationVar(&o.Lifetime, "certificate-lifetime", o.Lifetime,
		"Time for which a certificate in --serving-secret is valid. It is renewed after two thirds of that.")
	fs.DurationVar(&o.Overlap, "certificate-overlap", o.Overlap,
		"Time for which the CAs of the old and the new certificate in --serving-secret are both trusted before the new one is used, and after that. At least "+
			minOverlap.String()+", and at most a sixth of --certificate-lifetime.")
}

// Validate returns all errors in the options, joined.
func (o *Options) Validate() error {
	if o.Secret == "" {
		return nil
	}
	var errs []error
	if namespace, name, _ := strings.Cut(o.Secret, "/"); namespace == "" || name == "" || strings.Contains(name, "/") {
		errs = append(errs, fmt.Errorf("--serving-secret is %q: must be NAMESPACE/NAME", o.Secret))
	}
	if o.Service == "" {
		errs = append(errs, errors.New("--serving-service must not be empty"))
	}
	if o.Overlap < minOverlap || o.Overlap > o.Lifetime/6 {
		errs = append(errs, fmt.Errorf("--certificate-overlap is %s: must be at least %s and at most a sixth of --certificate-lifetime, which is %s", o.Overlap, minOverlap, o.Lifetime))
	}
	return errors.Join(errs...)
}

func (o *Options) secret() types.NamespacedName {
	namespace, name, _ := strings.Cut(o.Secret, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// host is the name that the kube-apiserver and clients in the cluster verify.
func (o *Options) host() string { return o.Service + "." + o.secret().Namespace + ".svc" }
