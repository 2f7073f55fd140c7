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

// Command run starts a Kubernetes API with Catena on this machine, shows the sample conversations, and serves until it is
// interrupted. With --gateway, it also starts the reference gateway in front of the engine at --upstream, or of a scripted
// one. `make run` and `make run-gateway` build what it needs.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/gateway"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/version"
)

// sampleTurn is the last turn of the conversation in config/samples.
const sampleTurn = "resp_67ccd41be2f48190"

type options struct {
	dir         string
	gateway     bool
	gatewayPort int
	upstream    string
}

func main() {
	o := options{}
	flag.StringVar(&o.dir, "dir", filepath.Join(testutil.Root(), ".run"), "Directory for data and logs.")
	flag.BoolVar(&o.gateway, "gateway", false, "Also start the gateway.")
	flag.IntVar(&o.gatewayPort, "gateway-port", 8090, "Loopback port of the gateway; 0 selects a free port.")
	flag.StringVar(&o.upstream, "upstream", "", "URL of the engine behind the gateway. By default, a scripted engine is used.")
	showVersion := flag.Bool("version", false, "Print the version and exit.")
	flag.Parse()
	if *showVersion {
		fmt.Println("run", version.String())
		return
	}
	log.SetLogger(logr.Discard()) // envtest's; what matters is in .run/logs
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// After an interrupt, which is the normal end of a run, errors are only its consequences.
	if err := run(ctx, o); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

// run starts everything, serves, and stops everything.
func run(ctx context.Context, o options) error {
	unlock, err := lock(o.dir)
	if err != nil {
		return err
	}
	defer unlock()

	step("Starting etcd, kube-apiserver and the garbage collector")
	env, err := testenv.Start(ctx, catenatest.Options{Dir: o.dir, GarbageCollector: catenatest.Required, Fsync: true})
	if err != nil {
		return err
	}
	defer func() {
		step("Stopping")
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "run:", err)
		}
	}()

	step("Starting the operator")
	operator, err := env.StartOperator(ctx, catenatest.OperatorOptions{Args: []string{fmt.Sprintf("--max-depth=%d", gateway.DefaultMaxDepth)}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-operator.Done()
		cancel(fmt.Errorf("the operator ended: %w, see %s", cmp.Or(operator.Err(), subprocess.ErrExitedCleanly), operator.LogFile))
	}()
	if err := showSamples(ctx, env); err != nil && ctx.Err() == nil {
		return err
	}
	if o.gateway && ctx.Err() == nil {
		if o.upstream == "" {
			engine := httptest.NewServer(enginetest.Handler())
			defer engine.Close()
			o.upstream = engine.URL
		}
		if err := serveGateway(ctx, env, o, cancel); err != nil && ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// serveGateway starts the gateway and prints what to try. It calls cancel when the gateway ends.
func serveGateway(ctx context.Context, env *testenv.Environment, o options, cancel context.CancelCauseFunc) error {
	fmt.Println()
	step("Starting the gateway in front of " + o.upstream)
	gateway, err := env.StartGateway(ctx, testenv.GatewayOptions{Upstream: o.upstream, Port: o.gatewayPort})
	if err != nil {
		return err
	}
	go func() {
		<-gateway.Done()
		cancel(fmt.Errorf("the gateway ended: %w, see %s", cmp.Or(gateway.Err(), subprocess.ErrExitedCleanly), gateway.LogFile))
	}()
	fmt.Printf(`
The gateway serves %[1]s/v1 until Ctrl-C. GET /v1/models lists the engine's models. With the scripted engine, try:

  curl -sS %[1]s/v1/responses -H 'Content-Type: application/json' -d '{"model": "scripted", "input": "My name is Ada."}' | tee .run/first.json
  curl -sS %[1]s/v1/responses -H 'Content-Type: application/json' -d '{"model": "scripted", "input": "Who am I?", "previous_response_id": "'"$(jq -r .id .run/first.json)"'"}'
`, gateway.URL)
	return nil
}

// showSamples applies the samples, waits for their verdicts and prints them.
func showSamples(ctx context.Context, env *testenv.Environment) error {
	waitCtx, cancel := context.WithTimeout(ctx, testutil.Patience)
	defer cancel()
	step("Applying config/samples")
	samples, err := env.ApplySamples(waitCtx)
	if err != nil {
		return err
	}
	for _, sample := range samples {
		if err := waitForVerdict(waitCtx, env.Client, sample); err != nil {
			return err
		}
	}
	return show(ctx, env)
}

// waitForVerdict waits until the operator has written a verdict on the sample's current generation.
func waitForVerdict(ctx context.Context, c client.Client, sample *unstructured.Unstructured) error {
	current := sample.DeepCopy()
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if last = c.Get(ctx, client.ObjectKeyFromObject(sample), current); last != nil {
			return false, nil
		}
		observed, _, err := unstructured.NestedInt64(current.Object, "status", "observedGeneration")
		return observed == current.GetGeneration(), err
	})
	if err != nil {
		return fmt.Errorf("the operator has written no verdict on sample %s: %w", sample.GetName(), errors.Join(err, last))
	}
	return nil
}

// show prints the samples and what to try next.
func show(ctx context.Context, env *testenv.Environment) error {
	kubectl, err := testenv.Kubectl()
	if err != nil {
		return err
	}
	if err := printed(ctx, env, kubectl, "get", "responsesessions"); err != nil {
		return err
	}
	if err := printed(ctx, env, kubectl, "get", "inputitems", sampleTurn); err != nil {
		return err
	}
	if err := printed(ctx, env, kubectl, "get", "conversations", "--output=wide"); err != nil {
		return err
	}
	name, kubeconfig := kubectl, env.Kubeconfig
	if path, err := exec.LookPath("kubectl"); err == nil && path != "" {
		name = "kubectl"
	}
	fmt.Printf(`
Serving until Ctrl-C. Logs are in %s. In another terminal:

  export KUBECONFIG=%s
  %[3]s explain responsesession.spec
  %[3]s get responsesessions -o wide --field-selector spec.conversationID=conv_lisbon
  %[3]s get inputitems %[4]s -o yaml
  %[3]s get conversationitems conv_lisbon_pt
`, filepath.Join(filepath.Dir(kubeconfig), "logs"), kubeconfig, name, sampleTurn)
	return nil
}

// printed runs kubectl and prints its command line and output.
func printed(ctx context.Context, env *testenv.Environment, kubectl string, args ...string) error {
	fmt.Printf("\n$ kubectl %s\n", strings.Join(args, " "))
	command := exec.CommandContext(ctx, kubectl, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// lock ensures that only one run uses dir. The kernel releases the lock when this process ends for any reason.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another `make run` is using %s: stop it first", dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func step(text string) { fmt.Printf("==> %s\n", text) }
