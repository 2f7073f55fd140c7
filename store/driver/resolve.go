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

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/internal/chain"
)

// The values of ResolveOptions.Instructions. Package store documents them.
const (
	InstructionsAll  = "All"
	InstructionsLast = "Last"
	InstructionsOmit = "Omit"
)

// The values of ResolveOptions.Order and ListOptions.Order.
const (
	OrderAscending  = "asc"
	OrderDescending = "desc"
)

// The limits of options.
const (
	// DefaultMaxDepth (64) is the maximum number of turns in a chain if neither the options nor the store set another.
	DefaultMaxDepth = chain.DefaultMaxDepth
	// MaxDepthLimit (10,000) is the largest ResolveOptions.MaxDepth. In a cluster, the operator may have a lower limit,
	// which it then stands for.
	MaxDepthLimit = 10_000
	// MaxLimit (1000) is the largest ResolveOptions.Limit and ListOptions.Limit.
	MaxLimit = 1000
)

// ResolveOptions are the options of store.Store.Resolve. The zero value returns the whole history.
//
// The JSON names are those of the resolve API's query parameters: see Query. To add an option, add it here, to optionValues,
// and with its documentation to InputItemsOptions of the resolve API. If it selects entries of a turn, add it to the view
// in a cursor, in internal/history. An option without a JSON name is none of the resolve API.
type ResolveOptions struct {
	// MaxDepth is the maximum number of turns in the chain; 0 always fails. If nil, the store's default applies, or Last if that is larger.
	MaxDepth *int `json:"maxDepth,omitempty"`
	// Last is the number of turns to return, from 1 to MaxDepthLimit; 0 returns all. What is before the last turns is not read: their history
	// takes as long however long the chain is, and does not fail if the chain is broken there or has more turns than MaxDepth. An operator that
	// is older than this option makes it an error that is ErrUnsupported.
	Last int `json:"last,omitempty"`
	// ContinueIncomplete accepts turns whose status is "incomplete": the model was cut off by max_output_tokens or a content filter,
	// and is asked to go on. An operator that is older than this option ignores it.
	ContinueIncomplete bool `json:"continueIncomplete,omitempty"`
	// IncludeIncomplete accepts turns that are not completed, whatever their status is, with the items that they have so far.
	IncludeIncomplete bool `json:"includeIncomplete,omitempty"`
	// Origins requests History.Origins. They are missing if the operator is older than this option.
	Origins bool `json:"origins,omitempty"`
	// Digests requests History.Digests. They are missing if the operator is older than this option.
	Digests bool `json:"digests,omitempty"`
	// Instructions is "All", "Last" or "Omit"; empty means "All".
	Instructions string `json:"instructions,omitempty"`
	// Limit is the maximum number of items to return, from 1 to MaxLimit; 0 returns all.
	Limit int `json:"limit,omitempty"`
	// After is History.Next of the previous page, and requires a Limit. The requested turn, IncludeIncomplete, Instructions
	// and Order must be the same as for that page.
	After string `json:"after,omitempty"`
	// Order is "asc" or "desc"; empty means "asc".
	Order string `json:"order,omitempty"`
	// Version requires a result at least as new as this Session.Version. Without it, a recent overwrite or deletion may not be
	// visible for a moment; a new turn always is.
	Version string `json:"resourceVersion,omitempty"`
	// Bodies requests History.Sessions, and excludes a Limit. It takes about as much memory again as the items. In a cluster, it also
	// takes a request for each turn.
	Bodies bool `json:"-"`
}

// Depth returns the maximum number of turns in the chain, given the store's default.
func (o ResolveOptions) Depth(byDefault int) int {
	if o.MaxDepth != nil {
		return *o.MaxDepth
	}
	return max(byDefault, o.Last)
}

// option is an option in text form.
type option struct {
	name string
	// allowed reports whether a value is allowed; if nil, every value is. description completes "must be".
	allowed     func(value string) bool
	description string
}

// optionValues defines the allowed values of each of the ResolveOptions.
var optionValues = []option{
	between("maxDepth", 0, MaxDepthLimit),
	between("last", 1, MaxDepthLimit),
	boolean("continueIncomplete"),
	boolean("includeIncomplete"),
	boolean("origins"),
	boolean("digests"),
	oneOf("instructions", InstructionsAll, InstructionsLast, InstructionsOmit),
	between("limit", 1, MaxLimit),
	{"after", nil, ""},
	oneOf("order", OrderAscending, OrderDescending),
	{"resourceVersion", nil, ""},
}

func boolean(name string) option {
	return option{name, func(value string) bool { return value == "true" || value == "false" }, "true or false"}
}

func oneOf(name string, values ...string) option {
	allowed := func(value string) bool { return slices.Contains(values, value) }
	return option{name, allowed, "one of " + strings.Join(values, ", ")}
}

// listOf allows one or more of the values, separated by commas.
func listOf(name string, values ...string) option {
	allowed := func(value string) bool {
		return !slices.ContainsFunc(strings.Split(value, ","), func(v string) bool { return !slices.Contains(values, v) })
	}
	return option{name, allowed, "one or more of " + strings.Join(values, ", ") + ", separated by commas"}
}

func between(name string, least, most int) option {
	allowed := func(value string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= least && n <= most
	}
	return option{name, allowed, fmt.Sprintf("a whole number from %d to %d", least, most)}
}

// OptionError is the error for an option with a value that is not allowed.
type OptionError struct {
	// Name is the JSON name of the option.
	Name string
	// Problem completes a sentence that begins with the name: it contains the value and the allowed values.
	Problem string
}

// Error returns one sentence, such as: "limit" is "-5": must be a whole number from 1 to 1000.
func (e *OptionError) Error() string { return strconv.Quote(e.Name) + " " + e.Problem }

// NewOptionError returns the error for an option with a value that is not allowed, given a description of the allowed values.
func NewOptionError(name, value, allowed string) *OptionError {
	return &OptionError{Name: name, Problem: fmt.Sprintf("is %.100q: must be %s", value, allowed)}
}

// Validate returns an *OptionError for an option whose value is not allowed.
func (o ResolveOptions) Validate() error {
	if o.Bodies && o.Limit != 0 {
		return &OptionError{Name: "bodies", Problem: `excludes "limit": the turns of a history have no pages`}
	}
	_, err := ParseQuery(o.Query())
	return err
}
