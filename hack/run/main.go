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

// Command run starts a Kubernetes API with Catena in it on this machine, shows the sample conversations, and serves
// until it is interrupted. With --gateway it starts the reference gateway too, in front of the engine that --upstream
// names, or of a scripted one. `make run` and `make run-gateway` build what it needs.
package main

import (
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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
)

const (
	// sampleTurn is the last turn of the conversation in config/samples.
	sampleTurn = "resp_67ccd41be2f48190"
	// judgeTimeout is how long the operator may take to judge the samples and to become available.
	judgeTimeout = 3 * time.Minute
)

type options struct {
	dir         string
	gateway     bool
	gatewayPort int
	upstream    string
}

func main() {
	o := options{}
	flag.StringVar(&o.dir, "dir", filepath.Join(testenv.Root(), ".run"), "Where everything is kept.")
	flag.BoolVar(&o.gateway, "gateway", false, "Start the gateway too.")
	flag.IntVar(&o.gatewayPort, "gateway-port", 8090, "Where the gateway serves on loopback; 0 is a free port.")
	flag.StringVar(&o.upstream, "upstream", "", "The URL of the gateway's engine; without it, the gateway gets a scripted one.")
	flag.Parse()
	log.SetLogger(logr.Discard()) // envtest's; what matters is in .run/logs
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// After an interrupt, which is how a run is meant to end, an error is only its consequence.
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
	env, err := testenv.Start(ctx, testenv.Options{Dir: o.dir, GarbageCollector: true})
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
	operator, err := env.StartOperator(ctx, testenv.OperatorOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-operator.Done()
		cancel(fmt.Errorf("the operator ended (%w), see %s", operator.Err(), operator.LogFile))
	}()
	if err := serve(ctx, env, operator); err != nil && ctx.Err() == nil {
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

// serveGateway starts the gateway and says what to try. It cancels where the gateway ends.
func serveGateway(ctx context.Context, env *testenv.Environment, o options, cancel context.CancelCauseFunc) error {
	fmt.Println()
	step("Starting the gateway in front of " + o.upstream)
	gateway, err := env.StartGateway(ctx, testenv.GatewayOptions{Upstream: o.upstream, Port: o.gatewayPort})
	if err != nil {
		return err
	}
	go func() {
		<-gateway.Done()
		cancel(fmt.Errorf("the gateway ended (%w), see %s", gateway.Err(), gateway.LogFile))
	}()
	fmt.Printf(`
The gateway serves %[1]s/v1 until Ctrl-C. GET /v1/models has the models of its engine; the scripted one has this:

  curl -sS %[1]s/v1/responses -H 'Content-Type: application/json' -d '{"model": "scripted", "input": "My name is Ada."}' | tee .run/first.json
  curl -sS %[1]s/v1/responses -H 'Content-Type: application/json' -d '{"model": "scripted", "input": "Who am I?", "previous_response_id": "'"$(jq -r .id .run/first.json)"'"}'
`, gateway.URL)
	return nil
}

// serve registers the resolve API, applies the samples, waits for their verdicts and shows them.
func serve(ctx context.Context, env *testenv.Environment, operator *testenv.Operator) error {
	waitCtx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	if err := env.RegisterAPIService(waitCtx, operator.Port); err != nil {
		return err
	}
	step("Applying config/samples")
	samples, err := env.Apply(waitCtx, "config/samples")
	if err != nil {
		return err
	}
	for _, sample := range samples {
		if err := waitUntilJudged(waitCtx, env.Client, sample); err != nil {
			return err
		}
	}
	if err := env.WaitForAPIService(waitCtx); err != nil {
		return err
	}
	return show(ctx, env)
}

// waitUntilJudged waits until the controller has seen the sample as it is now.
func waitUntilJudged(ctx context.Context, c client.Client, sample *unstructured.Unstructured) error {
	session := &v1alpha1.ResponseSession{}
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if last = c.Get(ctx, client.ObjectKeyFromObject(sample), session); last != nil {
			return false, nil
		}
		condition := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionChainValid)
		return condition != nil && condition.ObservedGeneration == session.Generation, nil
	})
	if err != nil {
		return fmt.Errorf("sample %s is not judged: %w", sample.GetName(), errors.Join(err, last))
	}
	return nil
}

// show prints what there is and what to try next.
func show(ctx context.Context, env *testenv.Environment) error {
	kubectl, err := testenv.Binary("kubectl")
	if err != nil {
		return err
	}
	if err := printed(ctx, env, kubectl, "get", "responsesessions"); err != nil {
		return err
	}
	if err := printed(ctx, env, kubectl, "get", "inputitems", sampleTurn); err != nil {
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

// lock makes sure that only one run uses dir. The kernel releases the lock however this process ends.
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
		err = fmt.Errorf("another `make run` is serving from %s: stop it first", dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func step(text string) { fmt.Printf("==> %s\n", text) }
