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

package driver

import "fmt"

// The values of ResolveOptions.Instructions.
const (
	InstructionsAll  = "All"
	InstructionsLast = "Last"
	InstructionsOmit = "Omit"
)

// The values of ResolveOptions.Order.
const (
	OrderAscending  = "asc"
	OrderDescending = "desc"
)

// The limits of ResolveOptions.
const (
	// DefaultMaxDepth is the maximum number of turns in a chain if neither the options nor the store set another.
	DefaultMaxDepth = 64
	// MaxDepthLimit is the largest ResolveOptions.MaxDepth. In a cluster, the operator may have a lower limit.
	MaxDepthLimit = 10_000
	// MaxLimit is the largest ResolveOptions.Limit.
	MaxLimit = 1000
)

// ResolveOptions are the options of store.Store.Resolve. The zero value asks for the whole history.
type ResolveOptions struct {
	// MaxDepth is the maximum number of turns in the chain; 0 always fails. If nil, the store's default applies.
	MaxDepth *int
	// IncludeIncomplete accepts turns that are not completed, with the items that they have.
	IncludeIncomplete bool
	// Instructions is "All", "Last" or "Omit"; empty means "All".
	Instructions string
	// Limit is the maximum number of items to return, from 1 to MaxLimit; 0 asks for all.
	Limit int
	// After is History.Next of the previous page, and requires a Limit. The turn asked for, IncludeIncomplete,
	// Instructions and Order must be the same as for that page.
	After string
	// Order is "asc" or "desc"; empty means "asc".
	Order string
	// Version asks for a result at least as new as this Session.Version. Without it, a recent overwrite or deletion may be
	// missed for a moment; a new turn never is.
	Version string
}

// Validate returns an error that is ErrInvalid if a value is not allowed.
func (o ResolveOptions) Validate() error {
	var err error
	switch {
	case o.MaxDepth != nil && (*o.MaxDepth < 0 || *o.MaxDepth > MaxDepthLimit):
		err = fmt.Errorf("the maximum depth is %d: must be from 0 to %d", *o.MaxDepth, MaxDepthLimit)
	case o.Limit < 0 || o.Limit > MaxLimit:
		err = fmt.Errorf("the limit is %d: must be from 1 to %d, or 0 for none", o.Limit, MaxLimit)
	case o.After != "" && o.Limit == 0:
		err = fmt.Errorf("a cursor needs a limit")
	case o.Instructions != "" && o.Instructions != InstructionsAll && o.Instructions != InstructionsLast && o.Instructions != InstructionsOmit:
		err = fmt.Errorf("the instructions are %q: must be %s, %s or %s", o.Instructions, InstructionsAll, InstructionsLast, InstructionsOmit)
	case o.Order != "" && o.Order != OrderAscending && o.Order != OrderDescending:
		err = fmt.Errorf("the order is %q: must be %s or %s", o.Order, OrderAscending, OrderDescending)
	default:
		return nil
	}
	return &Error{Code: CodeInvalid, Message: "unable to resolve", Err: err}
}
