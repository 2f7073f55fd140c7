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

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// operatorUser is the user of the service account in config/rbac.
const operatorUser = "system:serviceaccount:" + SystemNamespace + ":catena"

// OperatorOptions say how StartOperator starts the operator.
type OperatorOptions struct {
	// Port is where the resolve API is served; 0 means a free port.
	Port int

	// Args are appended to the operator's command line and override what StartOperator sets. Leader election is off
	// unless they turn it on.
	Args []string
}

// Operator is the operator as a process of its own, with the rights of config/rbac and no more.
type Operator struct {
	// Port is where the resolve API is served.
	Port int

	// HealthURL and MetricsURL are the base of the health probes and the address of the metrics.
	HealthURL, MetricsURL string

	// LogFile is where the operator's output goes.
	LogFile string

	process *process
}

// StartOperator builds cmd/catena, applies config/rbac and runs the operator. It returns when the operator is ready.
// The resolve API is not registered: see RegisterAPIService.
func (e *Environment) StartOperator(ctx context.Context, options OperatorOptions) (*Operator, error) {
	binary, err := build(ctx, "catena", "hack/build.sh", "catena")
	if err != nil {
		return nil, err
	}
	if _, err := e.Apply(ctx, "config/rbac"); err != nil {
		return nil, err
	}
	operator, err := e.runOperator(binary, options)
	if err != nil {
		return nil, fmt.Errorf("unable to start the operator: %w", err)
	}
	e.mu.Lock()
	e.operators = append(e.operators, operator)
	e.mu.Unlock()
	if err := operator.process.waitUntilReady(ctx, operator.HealthURL); err != nil {
		return nil, errors.Join(fmt.Errorf("the operator did not become ready, see %s: %w", operator.LogFile, err), operator.Stop())
	}
	return operator, nil
}

// Kill ends the operator at once, as a crash does.
func (o *Operator) Kill() error { return o.process.kill() }

// Stop asks the operator to stop and waits until it has.
func (o *Operator) Stop() error { return o.process.stop() }

// Done is closed when the operator's process has ended, for whatever reason.
func (o *Operator) Done() <-chan struct{} { return o.process.done }

// PID is the operator's process ID.
func (o *Operator) PID() int { return o.process.cmd.Process.Pid }

// Err says how the operator's process ended. It may be called when Done is closed.
func (o *Operator) Err() error { return o.process.exit() }

func (e *Environment) runOperator(binary string, options OperatorOptions) (*Operator, error) {
	kubeconfig, err := e.KubeconfigFor(operatorUser, "system:serviceaccounts", "system:serviceaccounts:"+SystemNamespace)
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(3, options.Port)
	if err != nil {
		return nil, err
	}
	health, metrics := loopback(ports[1]), loopback(ports[2])
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(ports[0]),
		"--tls-cert-file=" + e.Serving.CertFile,
		"--tls-private-key-file=" + e.Serving.KeyFile,
		"--health-probe-bind-address=" + health,
		"--metrics-bind-address=" + metrics,
		"--leader-elect=false",
		"--leader-election-namespace=" + SystemNamespace,
	}
	log, err := os.OpenFile(filepath.Join(e.logDir(), "catena.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child keeps its own
	process, err := startProcess(exec.Command(binary, append(args, options.Args...)...), log)
	if err != nil {
		return nil, err
	}
	return &Operator{
		Port:       ports[0],
		HealthURL:  "http://" + health,
		MetricsURL: "http://" + metrics + "/metrics",
		LogFile:    log.Name(),
		process:    process,
	}, nil
}

// build runs a command that builds bin/NAME, which stays as it is if it is up to date. The lock is for suites that build
// the same program at the same time.
func build(ctx context.Context, name string, args ...string) (string, error) {
	bin := filepath.Join(Root(), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(bin, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = Root()
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unable to build bin/%s: %w\n%s", name, err, output)
	}
	return filepath.Join(bin, name), nil
}
