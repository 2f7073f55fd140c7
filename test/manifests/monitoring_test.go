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
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// monitor is what the tests need of a ServiceMonitor and a PodMonitor; test/monitoring has their types.
type monitor struct {
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []struct {
			Port      string `json:"port"`
			TLSConfig struct {
				ServerName string `json:"serverName"`
				CA         ca     `json:"ca"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
		PodMetricsEndpoints []struct {
			Port string `json:"port"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// ca is where the CA of a certificate is.
type ca struct {
	Secret    *corev1.SecretKeySelector    `json:"secret"`
	ConfigMap *corev1.ConfigMapKeySelector `json:"configMap"`
}

// monitorOf returns the monitor of a kind, or nil.
func monitorOf(t *testing.T, objects []*unstructured.Unstructured, kind string) *monitor {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind {
			into := &monitor{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
				t.Fatal(err)
			}
			return into
		}
	}
	return nil
}

// TestServiceMonitor: Prometheus finds the operator, verifies its certificate with the CA that issues it, and may read the metrics.
func TestServiceMonitor(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		monitor := monitorOf(t, objects, "ServiceMonitor")
		if monitor == nil {
			return
		}
		endpoint := monitor.Spec.Endpoints[0]
		var services []string
		for _, service := range decode[corev1.Service](t, "Service", objects) {
			if labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) && service.Spec.Ports[0].Name == endpoint.Port {
				services = append(services, service.Name+"."+service.Namespace+".svc")
			}
		}
		if diff := cmp.Diff([]string{endpoint.TLSConfig.ServerName}, services); diff != "" {
			t.Errorf("Services that are scraped (-name in the certificate +selected):\n%s", diff)
		}
		if diff := cmp.Diff(wantCA(t, objects), endpoint.TLSConfig.CA); diff != "" {
			t.Errorf("CA (-want +got):\n%s", diff)
		}
		bound := false
		for _, binding := range decode[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding", objects) {
			bound = bound || binding.RoleRef.Name == "catena-metrics-reader"
		}
		if !bound {
			t.Error("nobody may read the metrics")
		}
	})
}

// wantCA returns where the CA of the operator's certificate is: in the Secret of the certificate, where the operator and cert-manager write
// it, or, if the user has provided both, in a ConfigMap with the CA of the APIService.
func wantCA(t *testing.T, objects []*unstructured.Unstructured) ca {
	t.Helper()
	for _, object := range objects {
		bundle, found, _ := unstructured.NestedString(object.Object, "spec", "caBundle")
		if object.GetKind() != "APIService" || !found {
			continue
		}
		for _, configMap := range decode[corev1.ConfigMap](t, "ConfigMap", objects) {
			if base64.StdEncoding.EncodeToString([]byte(configMap.Data["ca.crt"])) == bundle {
				return ca{ConfigMap: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: configMap.Name}, Key: "ca.crt"}}
			}
		}
		t.Fatal("no ConfigMap has the CA of the APIService")
	}
	secret := servingSecret(deploymentOf(t, objects, "catena"))
	return ca{Secret: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "ca.crt"}}
}

// servingSecret returns the name of the Secret with the operator's certificate.
func servingSecret(deployment *appsv1.Deployment) string {
	for _, arg := range arguments(deployment) {
		if secret, found := strings.CutPrefix(arg, "--serving-secret="+deployment.Namespace+"/"); found {
			return secret
		}
	}
	return deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName
}

// TestPodMonitor: Prometheus finds the gateways.
func TestPodMonitor(t *testing.T) {
	forEachInstallation(t, func(t *testing.T, objects []*unstructured.Unstructured) {
		monitor, deployment := monitorOf(t, objects, "PodMonitor"), deploymentOf(t, objects, "catena-gateway")
		if monitor == nil || deployment == nil {
			return
		}
		if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(deployment.Spec.Template.Labels)) {
			t.Errorf("the PodMonitor does not select Pods with the labels %v", deployment.Spec.Template.Labels)
		}
		if port := monitor.Spec.PodMetricsEndpoints[0].Port; !hasPort(deployment, port) {
			t.Errorf("the gateway has no port %s", port)
		}
	})
}

// TestOrderOfComponents: the component cert-manager fails to build before monitoring, whose ServiceMonitor it has to change.
func TestOrderOfComponents(t *testing.T) {
	if _, err := tryBuild(t, kustomization(variant{components: []string{"cert-manager", "monitoring"}})); err == nil {
		t.Error("built, want an error")
	}
}

// TestMonitoringValues: the values take effect.
func TestMonitoringValues(t *testing.T) {
	objects := render(t, namespace, values["one of everything"])
	var labelled []string
	for _, object := range objects {
		if object.GetLabels()["release"] == "prometheus" {
			labelled = append(labelled, object.GetKind())
		}
	}
	if diff := cmp.Diff([]string{"PodMonitor", "PrometheusRule", "ServiceMonitor"}, labelled); diff != "" {
		t.Errorf("kinds with the label (-want +got):\n%s", diff)
	}
	var subjects []rbacv1.Subject
	for _, binding := range decode[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding", objects) {
		if binding.RoleRef.Name == "catena-metrics-reader" {
			subjects = binding.Subjects
		}
	}
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "prometheus", Namespace: "team-a"}}, subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}
