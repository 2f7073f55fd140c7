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

// process is a child process. The methods of a nil process do nothing.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; to be read after done
}

// startProcess starts cmd in a process group of its own, so that a Ctrl-C reaches it through us and in order.
func startProcess(cmd *exec.Cmd, output io.Writer) (*process, error) {
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = childAttributes()
	p := &process{cmd: cmd, done: make(chan struct{})}
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

// stop asks the process to stop, waits for it, and kills it when that takes too long.
func (p *process) stop() error {
	if p == nil || p.ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("unable to stop %s: %w", filepath.Base(p.cmd.Path), err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		_ = p.kill()
		return fmt.Errorf("%s did not stop within %s and was killed", filepath.Base(p.cmd.Path), patience)
	}
}

// kill kills the process and waits until it is gone.
func (p *process) kill() error {
	if p == nil || p.ended() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("unable to kill %s: %w", filepath.Base(p.cmd.Path), err)
	}
	<-p.done
	return nil
}

func (p *process) ended() bool {
	if p == nil || p.cmd.Process == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exit says how the process ended. It may be called when it has.
func (p *process) exit() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// waitUntilReady waits until the /readyz of a URL says that the process is ready.
func (p *process) waitUntilReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if p.ended() {
			return false, fmt.Errorf("it ended: %w", p.exit())
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil // not listening yet
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
}

// guardScript waits until its input closes, which happens when the process that started it is gone, however it went.
// Then it kills the etcd and the kube-apiserver of the directory, which envtest starts without a tie to our life. It
// needs /proc; elsewhere it does nothing.
const guardScript = `
read -r _
for p in /proc/[0-9]*; do
	if tr '\0' '\n' <"$p/cmdline" | grep -qxF -e "--data-dir=$GUARDED_DIR/etcd" -e "--cert-dir=$GUARDED_DIR/apiserver"; then
		kill -9 "${p#/proc/}"
	fi
done
if [ -n "$GUARDED_TEMPORARY" ]; then rm -rf "$GUARDED_DIR"; fi
`

// startGuard starts a shell that cleans up after a process which ends without Stop: killed, or by the panic of a test
// that timed out. Stop kills the guard.
func startGuard(dir string, temporary bool) (*process, error) {
	input, output, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }()
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.Stdin = input
	cmd.Env = append(os.Environ(), "GUARDED_DIR="+dir)
	if temporary {
		cmd.Env = append(cmd.Env, "GUARDED_TEMPORARY=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("unable to start the guard: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		_ = output.Close() // open, and so kept from the garbage collector, until here
	}()
	return p, nil
}
