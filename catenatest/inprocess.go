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

package catenatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/operator"
	"github.com/catena-dev/catena/internal/subprocess"
)

// occupied is true while an operator runs in this process. The metrics of controller-runtime are global, so that there can
// be only one at a time.
var occupied atomic.Bool

// inProcess is an operator in this process.
type inProcess struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // how it ended; to be read after done
}

func startInProcess(ctx context.Context, config *rest.Config, args []string) (*inProcess, error) {
	options := operator.NewOptions()
	flags := pflag.NewFlagSet("operator", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := errors.Join(flags.Parse(args), options.Validate()); err != nil {
		return nil, err
	}
	if !occupied.CompareAndSwap(false, true) {
		return nil, errors.New("an operator already runs in this process: stop it first, or set OperatorOptions.Binary")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o := &inProcess{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		defer occupied.Store(false)
		o.err = operator.Run(ctx, config, options)
	}()
	return o, nil
}

// Stop signals the operator to stop and waits until it has ended. It returns the error with which the operator ended.
func (o *inProcess) Stop() error {
	o.cancel()
	select {
	case <-o.done:
		return o.err
	case <-time.After(subprocess.Patience):
		return fmt.Errorf("the operator did not stop within %s", subprocess.Patience)
	}
}

// Kill returns an error.
func (o *inProcess) Kill() error {
	return errors.New("an operator in this process cannot be killed: set OperatorOptions.Binary")
}

// Done is closed when the operator has ended.
func (o *inProcess) Done() <-chan struct{} { return o.done }

// Err returns the error with which the operator ended.
func (o *inProcess) Err() error { return o.err }

// PID returns the ID of this process.
func (o *inProcess) PID() int { return os.Getpid() }
