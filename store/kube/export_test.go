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

package kube

import (
	"context"
	"time"

	"github.com/catena-dev/catena/store"
)

// TurnsAtOnce is turnsAtOnce.
const TurnsAtOnce = turnsAtOnce

// OwnerValid is ownerValid.
const OwnerValid = ownerValid

// OpenDriver opens the driver of a cluster.
var OpenDriver = openDriver

// OpenSlow is like Open, with a different duration after which a save checks the parts of its snapshot once more.
func OpenSlow(ctx context.Context, options Options, slow time.Duration) (*store.Store, error) {
	d, common, err := openDriver(ctx, options)
	if err != nil {
		return nil, err
	}
	d.(*cluster).slow = slow
	return store.New(d, common), nil
}

// DecodeIdentity is decodeIdentity.
var DecodeIdentity = decodeIdentity
