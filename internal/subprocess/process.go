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

// Package subprocess runs the child processes of test environments: none of them outlives the process that started it.
package subprocess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Patience is how long a process may take to start, and how long to stop. A loaded machine needs most of it.
const Patience = 2 * time.Minute

// PollInterval is the time between two requests that ask whether something has started.
const PollInterval = 50 * time.Millisecond

// Process is a child process. The methods of a nil Process do nothing.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; to be read after done
}

// Start starts cmd in its own process group, so that a Ctrl-C in the terminal does not reach it directly: the parent
// stops its children in order. On Linux, the kernel kills the child if the parent dies.
func Start(cmd *exec.Cmd, output io.Writer) (*Process, error) {
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = childAttributes()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The child dies with the thread that started it, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	return p, <-started
}

// Stop signals the process to stop and waits until it has ended. It kills the process if that takes too long.
func (p *Process) Stop() error {
	if p == nil || p.ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("unable to stop %s: %w", p.name(), err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(Patience):
		_ = p.Kill()
		return fmt.Errorf("%s did not stop within %s and was killed", p.name(), Patience)
	}
}

// Kill kills the process and waits until it has ended.
func (p *Process) Kill() error {
	if p == nil || p.ended() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("unable to kill %s: %w", p.name(), err)
	}
	<-p.done
	return nil
}

// Done is closed when the process has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error with which the process ended, or nil if it ended with exit status 0. It must not be called
// before Done is closed.
func (p *Process) Err() error { return p.err }

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) name() string { return filepath.Base(p.cmd.Path) }

func (p *Process) ended() bool {
	if p.cmd.Process == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// WaitUntilReady waits until url's /readyz returns 200. It returns an error if done is closed before that, which wraps the
// result of cause.
func WaitUntilReady(ctx context.Context, url string, done <-chan struct{}, cause func() error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, PollInterval, true, func(ctx context.Context) (bool, error) {
		select {
		case <-done:
			return false, fmt.Errorf("it ended: %w", cmp.Or(cause(), ErrExitedCleanly))
		default:
			return ready(ctx, url)
		}
	})
}

// ErrExitedCleanly indicates that a process exited with status 0.
var ErrExitedCleanly = errors.New("exit status 0")

func ready(ctx context.Context, url string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, nil // not listening yet
	}
	return response.StatusCode == http.StatusOK, response.Body.Close()
}
