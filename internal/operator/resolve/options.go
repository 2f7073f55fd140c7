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

package resolve

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// The defaults of Options.
const (
	DefaultCacheBytes    = 256 << 20
	DefaultHistoryBytes  = 128 << 20
	DefaultInFlightBytes = 400 << 20
	DefaultLiveReads     = 8

	DefaultInFlightRequests       = 400
	DefaultWaitingRequests        = 16
	DefaultConfirmationsPerSecond = 100
	DefaultAnswerBytesPerSecond   = 64 << 20
)

// minBytes keeps the cache and the other limits large enough for a turn of the largest size that one object can have.
const minBytes = 2 << 20

// maxConfirmationsPerSecond is more than any API server can read.
const maxConfirmationsPerSecond = 1_000_000

// Options limit the resources that a Reader and a Resolver use.
type Options struct {
	// CacheBytes is the size of the cache of items. Namespaces share it as in fair.Cache.
	CacheBytes int64
	// HistoryBytes is the largest size of the items of one history. Larger ones are rejected with ErrTooLarge. It is at most
	// a third of InFlightBytes.
	HistoryBytes int64
	// InFlightBytes is the size of the items that all queries together may hold at once. A turn that several queries hold
	// counts once. Namespaces share the bytes as in fair.Budget: one may hold a third, so that the largest history of another one always
	// fits too. Queries that exceed the limit are rejected with ErrBusy.
	InFlightBytes int64
	// InFlightRequests is the number of queries that may be in progress at once, until their results are released. Namespaces
	// share it as in fair.Budget. Queries that exceed the limit are rejected with ErrBusy.
	InFlightRequests int64
	// LiveReads is the number of reads from the API server that may be in progress at once, over all queries. Namespaces share
	// it as in fair.Budget; further reads wait.
	LiveReads int64
	// ConfirmationsPerSecond is the number of turns that each namespace may have confirmed with live reads, on average, and at
	// once after a pause. An error that the view has shown instead counts as up to eight turns. A query that exceeds the rate
	// waits, and is rejected with a *ThrottledError if the wait would be long.
	ConfirmationsPerSecond int64
	// AnswerBytesPerSecond is the size of the histories that each namespace may have, on average. Turns that are not cached count
	// six times, and so do snapshots that are read to confirm a turn. While a namespace is ahead of the rate by more than answerBurst,
	// its queries wait, and one that would wait for long is rejected with a *ThrottledError.
	AnswerBytesPerSecond int64
	// WaitingRequests is the number of queries of each namespace that may wait because they exceed ConfirmationsPerSecond, or
	// AnswerBytesPerSecond. Further ones are rejected with a *ThrottledError: the kube-apiserver counts a query that it forwards as in
	// progress, and its users have to share a number of these.
	WaitingRequests int64
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{
		CacheBytes: DefaultCacheBytes, HistoryBytes: DefaultHistoryBytes,
		InFlightBytes: DefaultInFlightBytes, LiveReads: DefaultLiveReads,
		InFlightRequests: DefaultInFlightRequests, WaitingRequests: DefaultWaitingRequests,
		ConfirmationsPerSecond: DefaultConfirmationsPerSecond, AnswerBytesPerSecond: DefaultAnswerBytesPerSecond,
	}
}

// share is the part of InFlightBytes that one namespace may hold.
func (o *Options) share() int64 { return o.InFlightBytes / 3 }

// AddFlags adds the options to flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.Int64Var(&o.CacheBytes, "body-cache-bytes", o.CacheBytes, "Size of the resolve API's cache of input items, in bytes. "+
		"A namespace may use what others leave, and always keeps an equal share.")
	flags.Int64Var(&o.HistoryBytes, "max-history-bytes", o.HistoryBytes,
		"Maximum size in bytes of the input items of one history. Larger histories are rejected with 413.")
	flags.Int64Var(&o.InFlightBytes, "max-inflight-bytes", o.InFlightBytes,
		"Maximum size in bytes of the input items that all requests in flight hold together. Items that several requests hold are counted once. "+
			"Namespaces share the limit: one or two may use a third each, three a quarter, and so on. Requests that exceed a share are rejected with 429.")
	flags.Int64Var(&o.InFlightRequests, "max-inflight-requests", o.InFlightRequests,
		"Maximum number of concurrent requests for histories, shared by namespaces: one alone may use half, two a third each, and so on. Requests that exceed a share are rejected with 429.")
	flags.Int64Var(&o.LiveReads, "max-live-reads", o.LiveReads, "Maximum number of concurrent reads of sessions from the kube-apiserver by the resolve API, shared by namespaces in the same way.")
	flags.Int64Var(&o.ConfirmationsPerSecond, "confirmations-per-second", o.ConfirmationsPerSecond,
		"Maximum number of turns per second that the resolve API reads for each namespace to confirm that a chain is broken. "+
			"A broken chain that needs no such reads counts as up to eight turns. Requests that exceed the rate wait for up to "+defaultWaits.rate.String()+", or are rejected with 429.")
	flags.Int64Var(&o.AnswerBytesPerSecond, "answer-bytes-per-second", o.AnswerBytesPerSecond,
		"Maximum number of bytes of histories per second that the resolve API returns for each namespace. Turns that it must read from the kube-apiserver count six times, even if they turn out to be unreadable. "+
			"Requests that exceed the rate wait for up to "+defaultWaits.rate.String()+", or are rejected with 429.")
	flags.Int64Var(&o.WaitingRequests, "max-waiting-requests", o.WaitingRequests,
		"Maximum number of concurrent requests of each namespace that wait because they exceed --confirmations-per-second, and of those that exceed "+
			"--answer-bytes-per-second. Others are rejected with 429: for the kube-apiserver, a request that waits is in progress.")
}

// Validate returns all errors in the options, joined.
func (o *Options) Validate() error {
	var errs []error
	if o.CacheBytes < minBytes {
		errs = append(errs, fmt.Errorf("--body-cache-bytes is %d: must be at least %d", o.CacheBytes, minBytes))
	}
	if o.HistoryBytes < minBytes || o.HistoryBytes > o.share() {
		errs = append(errs, fmt.Errorf("--max-history-bytes is %d: must be from %d to a third of --max-inflight-bytes, which is %d",
			o.HistoryBytes, minBytes, o.InFlightBytes))
	}
	if o.InFlightRequests < 1 {
		errs = append(errs, fmt.Errorf("--max-inflight-requests is %d: must be at least 1", o.InFlightRequests))
	}
	if o.LiveReads < 1 {
		errs = append(errs, fmt.Errorf("--max-live-reads is %d: must be at least 1", o.LiveReads))
	}
	if o.ConfirmationsPerSecond < 1 || o.ConfirmationsPerSecond > maxConfirmationsPerSecond {
		errs = append(errs, fmt.Errorf("--confirmations-per-second is %d: must be from 1 to %d", o.ConfirmationsPerSecond, maxConfirmationsPerSecond))
	}
	if o.AnswerBytesPerSecond < 1 {
		errs = append(errs, fmt.Errorf("--answer-bytes-per-second is %d: must be at least 1", o.AnswerBytesPerSecond))
	}
	if o.WaitingRequests < 0 {
		errs = append(errs, fmt.Errorf("--max-waiting-requests is %d: must not be negative", o.WaitingRequests))
	}
	return errors.Join(errs...)
}
