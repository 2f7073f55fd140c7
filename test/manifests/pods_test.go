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
	"maps"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// installations has all installations to check by name, once they have been built.
var installations map[string][]*unstructured.Unstructured

// forEachInstallation runs a test for all installations.
func forEachInstallation(t *testing.T, test func(t *testing.T, objects []*unstructured.Unstructured)) {
	t.Helper()
	if installations == nil {
		installations = map[string][]*unstructured.Unstructured{}
		for name, v := range variants {
			installations["config, "+name] = kustomize(t, v)
		}
		for name, values := range allValues() {
			installations["chart, "+name] = render(t, namespace, values)
		}
	}
	for name, objects := range installations {
		t.Run(name, func(t *testing.T) { test(t, objects) })
	}
}

// decode returns the objects of a kind as T.
func decode[T any](t *testing.T, kind string, objects []*unstructured.Unstructured) []*T {
	t.Helper()
	var decoded []*T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		into := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
			t.Errorf("%s %s: %v", kind, object.GetName(), err)
		}
		decoded = append(decoded, into)
	}
	return decoded
}

// TestPodSecurity: every Pod meets Pod Security's level restricted, except for the network of the host.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, deployment := range decode[appsv1.Deployment](t, "Deployment", objects) {
			pod := deployment.Spec.Template
			pod.Spec.HostNetwork = false
			for i := range pod.Spec.Containers[0].Ports {
				pod.Spec.Containers[0].Ports[i].HostPort = 0
			}
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
			if !result.Allowed {
				t.Errorf("%s: %s", deployment.Name, result.ForbiddenDetail())
			}
			if !*pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s can write to its file system", deployment.Name)
			}
		}
	})
}

// TestSelectors: Services, budgets, policies and preferences select Pods, and name ports, that exist.
func TestSelectors(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		deployments := decode[appsv1.Deployment](t, "Deployment", objects)
		selected := func(by string, selector map[string]string, ports ...intstr.IntOrString) {
			var found []string
			for _, deployment := range deployments {
				if !labels.SelectorFromSet(selector).Matches(labels.Set(deployment.Spec.Template.Labels)) {
					continue
				}
				found = append(found, deployment.Name)
				for _, port := range ports {
					if !hasPort(deployment, port.String()) {
						t.Errorf("%s: %s has no port %s", by, deployment.Name, port.String())
					}
				}
			}
			if len(found) != 1 {
				t.Errorf("%s selects %v, want one Deployment", by, found)
			}
		}
		for _, service := range decode[corev1.Service](t, "Service", objects) {
			selected("Service "+service.Name, service.Spec.Selector, service.Spec.Ports[0].TargetPort)
		}
		for _, budget := range decode[policyv1.PodDisruptionBudget](t, "PodDisruptionBudget", objects) {
			selected("PodDisruptionBudget "+budget.Name, budget.Spec.Selector.MatchLabels)
		}
		for _, network := range decode[networkingv1.NetworkPolicy](t, "NetworkPolicy", objects) {
			var ports []intstr.IntOrString
			for _, rule := range network.Spec.Ingress {
				for _, port := range rule.Ports {
					ports = append(ports, *port.Port)
				}
			}
			selected("NetworkPolicy "+network.Name, network.Spec.PodSelector.MatchLabels, ports...)
		}
		for _, deployment := range deployments {
			selected("Deployment "+deployment.Name, deployment.Spec.Selector.MatchLabels)
			for _, selector := range spread(deployment) {
				selected("scheduling of "+deployment.Name, selector.MatchLabels)
			}
			container := deployment.Spec.Template.Spec.Containers[0]
			for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
				if !hasPort(deployment, probe.HTTPGet.Port.String()) {
					t.Errorf("%s is probed on the port %s, which it does not have", deployment.Name, probe.HTTPGet.Port.String())
				}
			}
		}
	})
}

func hasPort(deployment *appsv1.Deployment, name string) bool {
	return containerPort(deployment, name) != ""
}

// containerPort returns the number of a port of the container, or "".
func containerPort(deployment *appsv1.Deployment, name string) string {
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		if port.Name == name {
			return strconv.Itoa(int(port.ContainerPort))
		}
	}
	return ""
}

// spread returns the selectors of the preferences for other nodes and zones.
func spread(deployment *appsv1.Deployment) []*metav1.LabelSelector {
	pod := deployment.Spec.Template.Spec
	var selectors []*metav1.LabelSelector
	if pod.Affinity != nil && pod.Affinity.PodAntiAffinity != nil {
		for _, term := range pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			selectors = append(selectors, term.PodAffinityTerm.LabelSelector)
		}
	}
	for _, constraint := range pod.TopologySpreadConstraints {
		if constraint.LabelSelector != nil {
			selectors = append(selectors, constraint.LabelSelector)
		}
	}
	return selectors
}

// TestMounts: flags name files in volumes that are mounted, and every volume is mounted.
func TestMounts(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, deployment := range decode[appsv1.Deployment](t, "Deployment", objects) {
			container := deployment.Spec.Template.Spec.Containers[0]
			mounted, volumes := map[string]bool{}, map[string]bool{}
			for _, mount := range container.VolumeMounts {
				mounted[mount.Name] = true
			}
			for _, volume := range deployment.Spec.Template.Spec.Volumes {
				volumes[volume.Name] = true
			}
			if !maps.Equal(mounted, volumes) {
				t.Errorf("%s mounts %v of the volumes %v", deployment.Name, mounted, volumes)
			}
			for _, arg := range arguments(deployment) {
				_, file, isFile := strings.Cut(arg, "-file=")
				isMounted := func() bool {
					for _, mount := range container.VolumeMounts {
						if strings.HasPrefix(file, mount.MountPath+"/") {
							return true
						}
					}
					return false
				}
				if isFile && !isMounted() {
					t.Errorf("%s: %s is not mounted", deployment.Name, arg)
				}
			}
		}
	})
}

// TestLinux: every Pod asks for a node on which its image runs, whatever else it asks for.
func TestLinux(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, deployment := range decode[appsv1.Deployment](t, "Deployment", objects) {
			if got := deployment.Spec.Template.Spec.NodeSelector[corev1.LabelOSStable]; got != "linux" {
				t.Errorf("%s runs on nodes with the operating system %q, want linux", deployment.Name, got)
			}
		}
	})
}

// TestRollout: no rollout takes a replica away before its successor is ready.
func TestRollout(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, deployment := range decode[appsv1.Deployment](t, "Deployment", objects) {
			if got := deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(); got != 0 {
				t.Errorf("%s: maxUnavailable is %d, want 0", deployment.Name, got)
			}
		}
	})
}

// TestHostNetwork: the operator uses the network of the host and the DNS of the cluster, and its namespace permits that.
func TestHostNetwork(t *testing.T) {
	objects := kustomize(t, variants["host network"])
	pod := deploymentOf(t, objects, "catena").Spec.Template.Spec
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		t.Errorf("hostNetwork %t, dnsPolicy %s, want the network of the host and the DNS of the cluster", pod.HostNetwork, pod.DNSPolicy)
	}
	level := byName(t, objects)["Namespace /"+namespace].GetLabels()[api.EnforceLevelLabel]
	if level != string(api.LevelPrivileged) {
		t.Errorf("the namespace enforces the level %q, want privileged", level)
	}
}

// TestNoInsecureAPIService: the kube-apiserver always verifies the operator.
func TestNoInsecureAPIService(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		for _, object := range objects {
			if _, found, _ := unstructured.NestedBool(object.Object, "spec", "insecureSkipTLSVerify"); found {
				t.Errorf("%s %s has insecureSkipTLSVerify", object.GetKind(), object.GetName())
			}
		}
	})
}

// deploymentOf returns the Deployment with a name, or nil.
func deploymentOf(t *testing.T, objects []*unstructured.Unstructured, name string) *appsv1.Deployment {
	t.Helper()
	for _, deployment := range decode[appsv1.Deployment](t, "Deployment", objects) {
		if deployment.Name == name {
			return deployment
		}
	}
	return nil
}
