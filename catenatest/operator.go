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
	"os/exec"
	"strconv"
	"time"

	"github.com/catena-dev/catena/internal/subprocess"
)

// operatorUser is the user of the service account in config/rbac.
const operatorUser = "system:serviceaccount:" + systemNamespace + ":catena"

var operatorGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace}

// OperatorOptions are the options of Environment.StartOperator.
type OperatorOptions struct {
	// Binary is the path of the operator's binary, to run it as a process of its own. If it is empty, the operator runs in
	// the current process, which can run only one at a time.
	Binary string

	// Port is the port on which the operator serves the resolve API; 0 is a free port.
	Port int

	// Args are flags of the operator (`catena --help` prints them), which override those that StartOperator sets. Leader
	// election is off unless they turn it on. In the current process, there are no flags for logging and --kubeconfig, and
	// --snapshot-store needs the import of the bucket's driver, such as gocloud.dev/blob/fileblob.
	Args []string
}

// Operator is an operator with the rights of config/rbac.
type Operator struct {
	// Port is the port on which the operator serves the resolve API.
	Port int

	// HealthURL is the base URL of the health probes, and MetricsURL is the URL of the metrics.
	HealthURL, MetricsURL string

	// LogFile is the path of the operator's log. It is empty if the operator runs in the current process: it then logs to
	// the logger of controller-runtime.
	LogFile string

	// ReadyAt is the time at which the readiness probe first succeeded.
	ReadyAt time.Time

	running running
}

// running is a subprocess.Process or inProcess.
type running interface {
	Kill() error
	Stop() error
	Done() <-chan struct{}
	Err() error
	PID() int
}

// StartOperator starts an operator and returns when it is ready. If no other operator of this environment runs, the
// resolve API is then served by this one: to simulate an outage, stop the operator, and start another one later.
func (e *Environment) StartOperator(ctx context.Context, options OperatorOptions) (*Operator, error) {
	alone := e.operatorsEnded()
	operator, err := e.runOperator(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("unable to start the operator: %w", err)
	}
	e.mu.Lock()
	e.operators = append(e.operators, operator)
	e.mu.Unlock()
	if err := subprocess.WaitUntilReady(ctx, operator.HealthURL, operator.Done(), operator.Err); err != nil {
		return nil, operator.giveUp(fmt.Errorf("the operator did not become ready%s: %w", operator.seeLog(), err))
	}
	operator.ReadyAt = time.Now()
	if !alone {
		return operator, nil
	}
	if err := e.registerAPIService(ctx, operator.Port); err != nil {
		return nil, operator.giveUp(err)
	}
	if err := e.WaitForResolveAPI(ctx); err != nil {
		return nil, operator.giveUp(err)
	}
	return operator, nil
}

// giveUp stops the operator after an error, and adds the error of stopping it, unless err is already the reason why the
// operator ended.
func (o *Operator) giveUp(err error) error {
	if stopErr := o.Stop(); !errors.Is(err, stopErr) {
		return errors.Join(err, stopErr)
	}
	return err
}

// seeLog returns the part of an error message that names the log file, if there is one.
func (o *Operator) seeLog() string {
	if o.LogFile == "" {
		return ""
	}
	return ", see " + o.LogFile
}

// Kill ends the operator immediately, as a crash does. It returns an error if the operator runs in the current process.
func (o *Operator) Kill() error { return o.running.Kill() }

// Stop signals the operator to stop and waits until it has ended.
func (o *Operator) Stop() error { return o.running.Stop() }

// Done is closed when the operator has ended, for whatever reason.
func (o *Operator) Done() <-chan struct{} { return o.running.Done() }

// Err returns the error with which the operator ended, or nil. It must not be called before Done is closed.
func (o *Operator) Err() error { return o.running.Err() }

// PID returns the ID of the operator's process.
func (o *Operator) PID() int { return o.running.PID() }

// operatorsEnded reports whether no operator runs.
func (e *Environment) operatorsEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, operator := range e.operators {
		select {
		case <-operator.Done():
		default:
			return false
		}
	}
	return true
}

func (e *Environment) runOperator(ctx context.Context, options OperatorOptions) (*Operator, error) {
	ports, err := subprocess.FreePorts(3, options.Port)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := e.KubeconfigFor(operatorUser, operatorGroups...)
	if err != nil {
		return nil, err
	}
	health, metrics := subprocess.Loopback(ports[1]), subprocess.Loopback(ports[2])
	operator := &Operator{Port: ports[0], HealthURL: "http://" + health, MetricsURL: "http://" + metrics + "/metrics"}
	args := append([]string{
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(operator.Port),
		"--tls-cert-file=" + e.serving.cert,
		"--tls-private-key-file=" + e.serving.key,
		"--health-probe-bind-address=" + health,
		"--metrics-bind-address=" + metrics,
		"--leader-elect=false",
		"--leader-election-namespace=" + systemNamespace,
	}, options.Args...)
	if options.Binary == "" {
		operator.running, err = e.runInProcess(ctx, args)
		return operator, err
	}
	log, err := e.openLog("catena")
	if err != nil {
		return nil, err
	}
	operator.LogFile = log.Name()
	operator.running, err = subprocess.Start(exec.Command(options.Binary, append([]string{"--kubeconfig=" + kubeconfig}, args...)...), log)
	return operator, err
}

func (e *Environment) runInProcess(ctx context.Context, args []string) (running, error) {
	config, err := e.ConfigFor(operatorUser, operatorGroups...)
	if err != nil {
		return nil, err
	}
	return startInProcess(ctx, config, args)
}
