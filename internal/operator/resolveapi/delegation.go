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
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	genericapiserver "k8s.io/apiserver/pkg/server"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
)

// If the kube-apiserver is unavailable to authenticate or authorize a caller, k8s.io/apiserver answers 401, or a 500 that is
// not a Status, and the caller would conclude that its token is invalid. So the failure is recorded with the request, and the
// response is replaced by a Status that gives the cause and the time to retry after.

// failure is the error of a request to the kube-apiserver, if there was one.
type failure struct {
	atomic.Pointer[apierrors.StatusError]
}

type failureKey struct{}

// noteFailures records failed delegation for withFailures, and delegates within limits. The user of a forwarded request is known.
func noteFailures(config *genericapiserver.Config, limits *limits) {
	authenticate, authorize := config.Authentication.Authenticator, config.Authorization.Authorizer
	config.Authentication.Authenticator = authenticator.RequestFunc(func(req *http.Request) (response *authenticator.Response, ok bool, err error) {
		if forwarded, _ := req.Context().Value(forwardedKey{}).(*authenticator.Response); forwarded != nil {
			return forwarded, true, nil
		}
		ctx, cancel := beforeDeadline(req.Context())
		defer cancel()
		response, err = review(ctx, limits, clientOf(req), func(ctx context.Context) (*authenticator.Response, error) {
			response, ok, err := authenticate.AuthenticateRequest(req.Clone(ctx)) // which changes the header
			if !ok {
				response = nil
			}
			return response, err
		})
		noteFailure(req.Context(), err)
		return response, response != nil, err
	})
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (decision authorizer.Decision, reason string, err error) {
		ctx, cancel := beforeDeadline(ctx)
		defer cancel()
		type answer struct {
			decision authorizer.Decision
			reason   string
		}
		asked, err := review(ctx, limits, a.GetUser().GetName(), func(ctx context.Context) (asked answer, err error) {
			asked.decision, asked.reason, err = authorizeNames(ctx, authorize, a)
			return asked, err
		})
		noteFailure(ctx, err)
		return asked.decision, asked.reason, err
	})
}

// authorizeNames authorizes a read by name. It first asks whether the caller may read all names of the namespace, because the kube-apiserver's
// answer is cached, and nearly every request is for another name. See docs/security.md for why this grants nothing.
func authorizeNames(ctx context.Context, authorize authorizer.Authorizer, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsResourceRequest() && a.GetVerb() == "get" && a.GetNamespace() != "" && a.GetName() != "" {
		decision, reason, err := authorize.Authorize(ctx, anyName{a})
		if decision == authorizer.DecisionAllow || err != nil {
			return decision, reason, err
		}
	}
	return authorize.Authorize(ctx, a)
}

// anyName are the attributes of a request without the name.
type anyName struct{ authorizer.Attributes }

// GetName returns an empty string.
func (anyName) GetName() string { return "" }

// noteFailure records the errors of several authenticators or authorizers if one of them could not reach the kube-apiserver.
// Other errors mean bad credentials.
func noteFailure(ctx context.Context, err error) {
	f, ok := ctx.Value(failureKey{}).(*failure)
	if err == nil || !ok {
		return
	}
	for _, err := range utilerrors.Flatten(utilerrors.NewAggregate([]error{err})).Errors() {
		if errors.Is(err, context.DeadlineExceeded) || isUnreachable(err) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			f.Store(readStatus(err))
		}
	}
}

// withFailures answers requests for which a failure was noted.
func withFailures(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f := &failure{}
		req = req.WithContext(context.WithValue(req.Context(), failureKey{}, f))
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(&failureWriter{ResponseWriter: w, req: req, failure: f}), req)
	})
}

// failureWriter replaces the answer to a request that could not be authenticated or authorized.
type failureWriter struct {
	http.ResponseWriter
	req      *http.Request
	failure  *failure
	replaced bool
}

// Unwrap returns the writer of the answer.
func (w *failureWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the header or, if the answer is replaced, all of it.
func (w *failureWriter) WriteHeader(code int) {
	status := w.failure.Load()
	if status == nil || (code != http.StatusUnauthorized && code != http.StatusInternalServerError) {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.replaced = true
	w.Header().Del("Content-Type")
	responsewriters.ErrorNegotiated(status, codecs, resolvev1alpha1.GroupVersion, w.ResponseWriter, w.req)
}

// Write drops the body of an answer that has been replaced.
func (w *failureWriter) Write(b []byte) (int, error) {
	if w.replaced {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
