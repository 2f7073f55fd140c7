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

// Package cluster_test tests an installation from outside, on whatever cluster KUBECONFIG names: `make test-cluster`. It
// uses what a user has: dist/install.yaml, the images in dist, and kubectl. Without -cluster, there are no tests.
package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/testutil"
)

var (
	enabled          = flag.Bool("cluster", false, "install Catena on the cluster of KUBECONFIG, which must not have it, and remove it at the end")
	registry         = flag.String("registry", "", "the registry of the images in dist")
	version          = flag.String("version", "", "the version of the images in dist")
	restartAPIServer = flag.String("restart-apiserver", "", "a shell command that kills the kube-apiserver, which something starts again; without it, this is not tested")
)

const (
	system = "catena-system"
	tenant = "catena-cluster-test"
)

// kubectl runs kubectl and returns its standard output. The test fails if kubectl does.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := tryKubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// tryKubectl runs kubectl with a standard input.
func tryKubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "kubectl", args...)
	command.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(output)), nil
}

// eventually waits until kubectl prints a text.
func eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		output, err := tryKubectl(ctx, "", args...)
		if err == nil && output != want {
			err = fmt.Errorf("kubectl %s: got %q, want %q", strings.Join(args, " "), output, want)
		}
		return err
	})
}

// rollout waits until all replicas of a Deployment are new and ready.
func rollout(t *testing.T, namespace, name string) {
	t.Helper()
	kubectl(t, "--namespace="+namespace, "rollout", "status", "deployment/"+name, "--timeout="+testutil.Patience.String())
}

// applyTemplate applies a file of testdata in which ${NAME} stands for a variable.
func applyTemplate(t *testing.T, name string, variables map[string]string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	manifest := os.Expand(string(content), func(name string) string {
		value, ok := variables[name]
		if !ok {
			t.Fatalf("%s has no variable %s", name, name)
		}
		return value
	})
	if _, err := tryKubectl(t.Context(), manifest, "apply", "--filename=-"); err != nil {
		t.Fatal(err)
	}
}

// clusterIP returns the address of a Service.
func clusterIP(t *testing.T, namespace, name string) string {
	t.Helper()
	return kubectl(t, "--namespace="+namespace, "get", "service", name, "--output=jsonpath={.spec.clusterIP}")
}

// askGateway sends a request with curl to a port of the gateway's Service, which is 127.0.0.1:8443 meanwhile, and returns the response.
func askGateway(t *testing.T, port string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", append([]string{"-euo", "pipefail", "-c", `
		trap 'kill $(jobs -p)' EXIT
		kubectl -n catena-system port-forward service/catena-gateway 8443:"$0" > /dev/null &
		until (exec 3<> /dev/tcp/127.0.0.1/8443) 2> /dev/null; do sleep 0.1; done
		curl --silent --show-error "$@"`, port}, args...)...)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("curl %s: %v", args, err)
	}
	return string(output)
}

// image returns the full name of an image in dist.
func image(name string) string { return *registry + "/" + name + ":" + *version }

// loadStatus is the Status of test/cluster/agent.
type loadStatus struct {
	Started                                   time.Time
	Streaming                                 int
	Turns, Streams, Conversations, Resolves   int
	WithID, Waiting                           int
	Failed, Repeated, Aborted, Probed, Locked loadFailures
}

type loadFailures struct {
	Count int
	Last  []string
}

// since returns those since a moment.
func (f loadFailures) since(before loadFailures) loadFailures {
	n := f.Count - before.Count
	return loadFailures{n, f.Last[max(0, len(f.Last)-n):]}
}

func (f loadFailures) String() string {
	return fmt.Sprintf("%d requests failed, of which the last are:\n%s", f.Count, strings.Join(f.Last, "\n"))
}

// askLoad returns the response of the agent under load to a path, through the kube-apiserver.
func askLoad(ctx context.Context, path string) (loadStatus, error) {
	var status loadStatus
	pod, err := tryKubectl(ctx, "", "--namespace="+tenant, "get", "pods", "--selector=app=load", "--output=jsonpath={.items[0].metadata.name}")
	if err != nil {
		return status, err
	}
	output, err := tryKubectl(ctx, "", "get", "--raw", "/api/v1/namespaces/"+tenant+"/pods/"+pod+":8000/proxy"+path)
	if err != nil {
		return status, err
	}
	return status, json.Unmarshal([]byte(output), &status)
}

// verdicts returns the response status of each session in the tenant's namespace and the reason of its verdict, such as "completed Resolved",
// or "completed " for a session without a verdict.
func verdicts(ctx context.Context) (verdicts []string, err error) {
	output, err := tryKubectl(ctx, "", "--namespace="+tenant, "get", "responsesessions",
		`--output=jsonpath={range .items[*]}{.spec.responseStatus} {.status.conditions[?(@.type=="ChainValid")].reason}{"\n"}{end}`)
	if output != "" {
		verdicts = strings.Split(output, "\n")
	}
	return verdicts, err
}

// conversationVerdicts returns the state of each Conversation in the tenant's namespace and the reason of its verdict, such as "Active Resolved".
func conversationVerdicts(ctx context.Context) (verdicts []string, err error) {
	output, err := tryKubectl(ctx, "", "--namespace="+tenant, "get", "conversations.sessions.catena.dev",
		`--output=jsonpath={range .items[*]}{.spec.state} {.status.conditions[?(@.type=="HeadResolved")].reason}{"\n"}{end}`)
	if output != "" {
		verdicts = strings.Split(output, "\n")
	}
	return verdicts, err
}

// withoutLoss runs a step under load during which not even clients that never repeat a request may notice anything.
func withoutLoss(t *testing.T, step func()) {
	t.Helper()
	before := mustAskLoad(t)
	underLoad(t, step)
	after := mustAskLoad(t)
	if !after.Started.Equal(before.Started) {
		t.Fatal("the load was started again, and has forgotten what failed before")
	}
	if lost := after.Repeated.since(before.Repeated); lost.Count > 0 {
		t.Errorf("of %d turns and %d resolves: %s", after.Turns-before.Turns, after.Resolves-before.Resolves, lost)
	}
	// No gateway was killed during the step, and no turn has waited for one that was killed before: none may have found a conversation locked.
	if locked := after.Locked.since(before.Locked); locked.Count > 0 {
		t.Errorf("locked conversations: %s", locked)
	}
	if probed := after.Probed.since(before.Probed); probed.Count > 0 {
		t.Errorf("probes: %s", probed)
	}
}

// withoutLossOfStreams is withoutLoss, and the streams that are in progress must be completed, too. Each takes a minute, so only gateways of this
// version may be replaced by the step: it is the replaced one that completes them.
func withoutLossOfStreams(t *testing.T, step func()) {
	t.Helper()
	before := mustAskLoad(t)
	withoutLoss(t, func() {
		step()
		begun := mustAskLoad(t)
		testutil.Eventually(t, func(context.Context) error {
			after := mustAskLoad(t)
			if n := after.Streams + after.Aborted.Count - begun.Streams - begun.Aborted.Count; n < begun.Streaming {
				return fmt.Errorf("%d streams have ended", n)
			}
			return nil
		})
	})
	if aborted := mustAskLoad(t).Aborted.since(before.Aborted); aborted.Count > 0 {
		t.Errorf("streams: %s", aborted)
	}
}

func mustAskLoad(t *testing.T) (status loadStatus) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) (err error) {
		status, err = askLoad(ctx, "/status")
		return err
	})
	return status
}

// underLoad runs a step of the test, and returns when further conversations have been completed after it. None may have failed, although
// requests may have been repeated, and none may wait any longer for a conversation that a killed gateway has left locked.
func underLoad(t *testing.T, step func()) {
	t.Helper()
	step()
	before := mustAskLoad(t)
	testutil.Eventually(t, func(ctx context.Context) error {
		status, err := askLoad(ctx, "/status")
		if err != nil {
			return err
		}
		if status.Failed.Count > 0 {
			t.Fatal(status.Failed)
		}
		// As many as there are workers may have begun before the step ended.
		if n := status.Conversations - before.Conversations; n < 8 {
			return fmt.Errorf("%d conversations since the step", n)
		}
		if n := status.WithID - before.WithID; n < 4 {
			return fmt.Errorf("%d conversations of the Conversations API since the step", n)
		}
		if status.Waiting > 0 {
			return fmt.Errorf("%d turns wait for locked conversations: %s", status.Waiting, status.Locked)
		}
		return nil
	})
}
