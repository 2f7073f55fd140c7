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

package manifests_test

import (
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/catena-dev/catena/internal/gateway"
	"github.com/catena-dev/catena/internal/logging"
	"github.com/catena-dev/catena/internal/operator"
	"github.com/catena-dev/catena/internal/testenv"
)

// arguments returns the arguments of the container with the variables that it refers to.
func arguments(deployment *appsv1.Deployment) []string {
	container := deployment.Spec.Template.Spec.Containers[0]
	var replacements []string
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
			value = deployment.Namespace // no other field is used
		}
		replacements = append(replacements, "$("+variable.Name+")", value)
	}
	args := make([]string, len(container.Args))
	for i, arg := range container.Args {
		args[i] = strings.NewReplacer(replacements...).Replace(arg)
	}
	return args
}

// TestOperatorFlags: the operator accepts its flags, serves where it is expected, and has time to end.
func TestOperatorFlags(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		deployment := deploymentOf(t, objects, "catena")
		flags, o := pflag.NewFlagSet("catena", pflag.ContinueOnError), operator.NewOptions()
		o.AddFlags(flags)
		logging.AddFlag(flags, new(slog.Level))
		if err := flags.Parse(arguments(deployment)); err != nil {
			t.Fatal(err)
		}
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
		wantPort(t, deployment, "https", ":"+strconv.Itoa(o.ResolveAPI.SecureServing.BindPort))
		wantPort(t, deployment, "health", o.HealthAddress)
		wantTime(t, deployment, o.ResolveAPI.ShutdownDelay+o.ResolveAPI.RequestTimeout+10*time.Second)
	})
}

// TestGatewayFlags: the gateway accepts its flags, serves where it is expected, and has the time and the memory that
// docs/gateway.md asks for.
func TestGatewayFlags(t *testing.T) {
	const besidesRequests = 128 << 20
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		deployment := deploymentOf(t, objects, "catena-gateway")
		if deployment == nil {
			return
		}
		flags, o := pflag.NewFlagSet("gateway", pflag.ContinueOnError), gateway.DefaultOptions()
		flags.ParseErrorsAllowlist.UnknownFlags = true // TestPrograms finds unknown ones
		o.AddFlags(flags)
		metrics, health := flags.String("metrics-bind-address", "", ""), flags.String("health-probe-bind-address", "", "")
		if err := flags.Parse(arguments(deployment)); err != nil {
			t.Fatal(err)
		}
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
		wantPort(t, deployment, "api", o.ListenAddress)
		wantPort(t, deployment, "metrics", *metrics)
		wantPort(t, deployment, "health", *health)
		wantTime(t, deployment, o.ShutdownDelay+o.ShutdownTimeout+o.SaveTimeout+30*time.Second)
		if limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value(); limit < o.MaxInFlightBytes+besidesRequests {
			t.Errorf("the memory limit is %d, want at least %d for --max-inflight-bytes and the program", limit, o.MaxInFlightBytes+besidesRequests)
		}
		operatorFlags := strings.Join(arguments(deploymentOf(t, objects, "catena")), " ")
		if want := fmt.Sprintf("--max-depth=%d", o.MaxDepth); !strings.Contains(operatorFlags, want) {
			t.Errorf("the operator has %s, want %s as the gateway", operatorFlags, want)
		}
	})
}

// TestMemoryLimit: the programs learn their memory limit if they have one; without one, the variable would have the memory of the node.
func TestMemoryLimit(t *testing.T) {
	const gatewayValues = "gateway: {enabled: true, upstream: {url: http://engine}, resources: %s}\nresources: %s"
	for resources, want := range map[string]bool{
		"{}":                               true,
		"{limits: {memory: 1Gi, cpu: 2}}":  true,
		"{limits: {memory: 1073741824}}":   true,
		"{limits: {memory: 0.5Gi}}":        true,
		"{limits: null}":                   false,
		"{limits: {memory: null, cpu: 2}}": false,
		"{limits: {memory: '0'}}":          false,
		"{limits: {memory: 0Gi}}":          false,
		"null":                             false,
	} {
		objects := render(t, namespace, fmt.Sprintf(gatewayValues, resources, resources))
		for _, name := range []string{"catena", "catena-gateway"} {
			container := deploymentOf(t, objects, name).Spec.Template.Spec.Containers[0]
			if got := slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "MEMORY_LIMIT" }); got != want {
				t.Errorf("%s, resources %s: MEMORY_LIMIT is set: %t", name, resources, got)
			}
		}
	}
}

// TestPrograms: the programs themselves know all flags of all installations.
func TestPrograms(t *testing.T) {
	testenv.SkipIfShort(t)
	args := map[string][]string{}
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, deployment := range decode[appsv1.Deployment](t, "Deployment", objects) {
			args[deployment.Name] = append(args[deployment.Name], arguments(deployment)...)
		}
	})
	for deployment, name := range map[string]string{"catena": "catena", "catena-gateway": "gateway"} {
		program, err := testenv.BuildProgram(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if output, err := exec.CommandContext(t.Context(), program, append(args[deployment], "--version")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, output)
		}
	}
}

func wantPort(t *testing.T, deployment *appsv1.Deployment, name, address string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" || port != containerPort(deployment, name) {
		t.Errorf("the program serves on %q, and the port %s is %s", address, name, containerPort(deployment, name))
	}
}

func wantTime(t *testing.T, deployment *appsv1.Deployment, want time.Duration) {
	t.Helper()
	if got := time.Duration(*deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; got < want {
		t.Errorf("terminationGracePeriodSeconds is %s, want at least %s", got, want)
	}
}
