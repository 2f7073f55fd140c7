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

package resolveapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/klog/v2"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/requestid"
)

// writeGrace is how long after the deadline of a request its answer must have been read. At the deadline itself, k8s.io/apiserver still
// writes an error.
const writeGrace = 5 * time.Second

var errBusyClient = errors.New("too many requests from this address, user or namespace are in progress")

// limits keep the clients of the port from using up what others need. Those of k8s.io/apiserver are for all clients together, and it
// waits without end for a client that does not read.
type limits struct {
	// requests are those in progress, by what tenantOf returns.
	requests *fair.Budget
	// proxy is nil without a front proxy.
	proxy *frontProxy
	// reviews are the requests to the kube-apiserver for a token, by the address of the client, and for access, by user. Clients of
	// the kube-apiserver wait for each other, so few are sent at once.
	reviews      *fair.Budget
	writeTimeout time.Duration
}

// maxURIBytes is the maximum length of a URL, with four of the longest IDs. k8s.io/apiserver logs the path of a request whose client has disconnected.
const maxURIBytes = 32 << 10

func newLimits(o *Options) *limits {
	return &limits{
		requests: fair.NewBudget(o.Requests), reviews: fair.NewBudget(o.Reviews), writeTimeout: o.RequestTimeout + writeGrace,
	}
}

// share handles each request within the share of its tenant, and ends it if the client does not read the answer.
func (l *limits) share(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.RequestURI) > maxURIBytes {
			http.Error(w, "the URL is too long", http.StatusRequestURITooLong)
			return
		}
		if err := checkTimeout(req.URL); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(l.writeTimeout)) // the writers of net/http support it
		forwarded := l.forwarded(req)
		tenant := tenantOf(req, forwarded)
		if !l.requests.TryAcquire(tenant, 1) {
			responsewriters.ErrorNegotiated(busy(errBusyClient), codecs, resolvev1alpha1.GroupVersion, w, req)
			return
		}
		defer l.requests.Release(tenant, 1)
		req = req.WithContext(context.WithValue(req.Context(), forwardedKey{}, forwarded))
		req.RequestURI = req.URL.EscapedPath() // k8s.io/apiserver logs it, and the query may have names
		next.ServeHTTP(w, req)
	})
}

// checkTimeout rejects a timeout that is not a duration. k8s.io/apiserver would log it, even if the client is not authenticated.
func checkTimeout(request *url.URL) error {
	if request.RawQuery == "" {
		return nil
	}
	if timeout := request.Query().Get("timeout"); timeout != "" {
		if _, err := time.ParseDuration(timeout); err != nil {
			return errors.New("the query parameter timeout must be a duration, such as 10s")
		}
	}
	return nil
}

// forwardedKey has the result of limits.forwarded.
type forwardedKey struct{}

// reviewTimeout is the timeout of a review, if that of the client of the kube-apiserver is not shorter.
const reviewTimeout = 10 * time.Second

// review returns the answer of ask, which may send a review to the kube-apiserver, within the share of a client or user. If ctx is done first,
// ask goes on and keeps its share: client-go limits the rate of all reviews together, those that are canceled count, and k8s.io/apiserver
// does not cancel all of them.
func review[T any](ctx context.Context, l *limits, of string, ask func(context.Context) (T, error)) (answer T, err error) {
	if err := l.reviews.Acquire(ctx, of, 1); err != nil {
		return answer, err
	}
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		var r result
		defer func() {
			if cause := recover(); cause != nil { // the server recovers only from panics of its own goroutines
				klog.ErrorS(nil, "A review has panicked", "cause", cause, "stack", string(debug.Stack()))
				r.err = errors.New("the review has failed; see the log of the operator")
			}
			l.reviews.Release(of, 1)
			done <- r
		}()
		r.answer, r.err = ask(ctx)
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// useProxy sets proxy from the authentication configuration, which is nil if there is no front proxy. Its certificate is trusted for ttl once
// it was verified.
func (l *limits) useProxy(proxy *authenticatorfactory.RequestHeaderConfig, ttl time.Duration) {
	if proxy != nil {
		l.proxy = newFrontProxy(proxy, ttl)
	}
}

// forwarded returns the user for whom the kube-apiserver has forwarded a request, or nil if it comes from elsewhere.
func (l *limits) forwarded(req *http.Request) *authenticator.Response {
	if l.proxy == nil {
		return nil
	}
	answer, ok, err := l.proxy.AuthenticateRequest(req)
	if !ok || err != nil {
		return nil
	}
	return answer
}

// tenantOf returns whom a request counts for: the address of its client or, if that is the kube-apiserver's proxy, the user for whom it
// forwards the request. All service accounts of a namespace are one tenant. Many addresses can therefore not use up the share of the
// kube-apiserver, through which most requests come.
func tenantOf(req *http.Request, forwarded *authenticator.Response) string {
	if forwarded == nil {
		return "address " + clientOf(req)
	}
	if namespace, _, err := serviceaccount.SplitUsername(forwarded.User.GetName()); err == nil {
		return "namespace " + namespace
	}
	return "user " + forwarded.User.GetName()
}

// clientOf returns the address of a client, without its port. It is the kube-apiserver's for requests that it forwards.
func clientOf(req *http.Request) string {
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// handled has the functions to call when a request has been handled.
type handled []func()

type handledKey struct{}

// withHandled calls the functions that were passed to whenHandled when a handler returns: its answer has been sent or has failed. The
// context of the request may end long before, while the answer waits for its client.
func withHandled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var all handled
		defer func() {
			for _, f := range all {
				f()
			}
		}()
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), handledKey{}, &all)))
	})
}

// whenHandled calls f when the request of a context has been handled. It must be called by its handler, which withHandled contains.
func whenHandled(ctx context.Context, f func()) {
	all := ctx.Value(handledKey{}).(*handled)
	*all = append(*all, f)
}

// withRequestID adds the ID that a client has sent to the context of its request. One that is not valid is ignored.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req.WithContext(requestid.NewContext(req.Context(), req.Header.Get(requestid.Header))))
	})
}
