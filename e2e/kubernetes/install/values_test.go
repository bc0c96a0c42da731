package install

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// All images have one shape: a registry of the values takes the place of the one in the repository, and a digest
// holds before the tag.
func TestImages(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	on := []string{"gateway.enabled=true", "nats.enabled=true", "prometheus.enabled=true"}
	for _, c := range []struct {
		values []string
		object string
		want   string
	}{
		{nil, "Deployment openfaas/faas-infer", "registry.example.com/faas-infer/provider:latest"},
		{[]string{"image.digest=" + digest, "image.tag=v1"}, "Deployment openfaas/faas-infer",
			"registry.example.com/faas-infer/provider@" + digest},
		{[]string{"image.registry=r.example.com:5000/mirror"}, "Deployment openfaas/faas-infer",
			"r.example.com:5000/mirror/faas-infer/provider:latest"},
		{[]string{"global.imageRegistry=r.example.com"}, "Deployment openfaas/faas-infer",
			"r.example.com/faas-infer/provider:latest"},
		{[]string{"global.imageRegistry=r.example.com"}, "Deployment openfaas/gateway",
			"r.example.com/openfaas/gateway:0.27.14"},
		{[]string{"global.imageRegistry=r.example.com", "nats.image.repository=nats"},
			"StatefulSet openfaas/nats", "r.example.com/nats:2.12"},
		{[]string{"global.imageRegistry=r.example.com", "prometheus.image.registry=q.example.com"},
			"Deployment openfaas/prometheus", "q.example.com/prom/prometheus:v3.5.0"},
		{[]string{"nats.image.digest=" + digest, "nats.image.tag="}, "StatefulSet openfaas/nats",
			"docker.io/library/nats@" + digest},
		{[]string{"nats.image=localhost/nats:2"}, "StatefulSet openfaas/nats", "localhost/nats:2"},
		{[]string{"global.imageRegistry=r.example.com", "nats.image.repository=localhost/a/nats"},
			"StatefulSet openfaas/nats", "r.example.com/a/nats:2.12"},
	} {
		if got := images(pods(t, read(t, rendered(t, append(c.values,
			on...)...)))[c.object]); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%v: %s has the images %v", c.values, c.object, got)
		}
	}
	// The images that are pulled have a policy and the pull secrets of both values.
	text := rendered(t, "nats.enabled=true", "nats.image.pullPolicy=Always", "global.imagePullSecrets={a}",
		"imagePullSecrets[0].name=b")
	for _, want := range []string{"imagePullPolicy: Always\n", "- {name: a}\n", "- {name: b}\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

// The names of objects, of the application and of the ServiceAccount are the values', and everything still fits
// together.
func TestOverrides(t *testing.T) {
	all := read(t, rendered(t, append([]string{"fullnameOverride=serving", "nameOverride=models",
		"serviceAccount.name=reader", `serviceAccount.annotations.example\.com/role=r`}, everything...)...))
	for key := range all {
		name := key[strings.LastIndex(key, "/")+1:]
		switch {
		case strings.HasPrefix(name, "faas-infer-node"), strings.HasPrefix(name, "faas-infer-copies"): // There is one.
		case name == "faas-infer", strings.HasPrefix(name, "faas-infer-"):
			t.Errorf("%s has the release's name", key)
		}
	}
	deployment := all["Deployment openfaas/serving"]
	account, _, _ := metav1.NestedString(deployment.Object, "spec", "template", "spec", "serviceAccountName")
	if own, ok := all["ServiceAccount openfaas/"+account]; !ok || account != "reader" ||
		own.GetAnnotations()["example.com/role"] != "r" {
		t.Errorf("the provider has the account %q with %v", account, own.GetAnnotations())
	}
	labels, _, _ := metav1.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
	for key, o := range all {
		switch o.GetKind() {
		case "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "Deployment":
			text, err := json.Marshal(o.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"app.kubernetes.io/name":"faas-infer"`) {
				t.Errorf("%s selects what the provider's labels %v are not: %s", key, labels, text)
			}
		case "RoleBinding", "ClusterRoleBinding":
			subjects, _, _ := metav1.NestedSlice(o.Object, "subjects")
			if of := subjects[0].(map[string]any)["name"]; of != "reader" && of != "faas-infer-node" {
				t.Errorf("%s binds %v", key, of)
			}
		}
	}
	if text := rendered(t, "serviceAccount.create=false", "serviceAccount.name=mine", "rbac.create=false",
		"crds.install=false"); strings.Contains(text, "kind: ServiceAccount\n") || strings.Contains(text,
		"RoleBinding") ||
		strings.Contains(text, "CustomResourceDefinition") || !strings.Contains(text,
		"serviceAccountName: mine\n") {
		t.Errorf("with an account, rights and a definition of others: %s", text)
	}
	if _, err := helm(t, "serviceAccount.create=false"); err == nil || !strings.Contains(err.Error(),
		"serviceAccount.name") {
		t.Errorf("without any account: %v", err)
	}
}

// Users get in by a Service of any type, an Ingress or an HTTPRoute, which lead to the provider or to the gateway.
func TestFront(t *testing.T) {
	on := []string{"ingress.enabled=true", "ingress.hosts[0].host=faas.example.com", "ingress.className=nginx",
		"ingress.tls[0].secretName=faas-tls",
		"httpRoute.enabled=true", "httpRoute.parentRefs[0].name=public",
		"httpRoute.hostnames={faas.example.com}", "service.port=80", "service.type=LoadBalancer",
		"service.nodePort=30080"}
	for front, values := range map[string][]string{"faas-infer-api": on,
		"gateway": append([]string{"gateway.enabled=true"}, on...)} {
		all := read(t, rendered(t, values...))
		service := all["Service openfaas/"+front]
		ports, _, _ := metav1.NestedSlice(service.Object, "spec", "ports")
		kind, _, _ := metav1.NestedString(service.Object, "spec", "type")
		if port := ports[0].(map[string]any); fmt.Sprint(port["port"], port["nodePort"]) != "80 30080" ||
			kind != "LoadBalancer" {
			t.Errorf("%s is a %s with %v", front, kind, port)
		}
		for _, key := range []string{"Ingress openfaas/faas-infer", "HTTPRoute openfaas/faas-infer"} {
			text, err := json.Marshal(all[key].Object)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), `"name":"`+front+`"`) || !strings.Contains(string(text),
				`"faas.example.com"`) {
				t.Errorf("%s does not lead to %s: %s", key, front, text)
			}
		}
	}
	for values, want := range map[string]string{"ingress.enabled=true": "ingress.hosts",
		"httpRoute.enabled=true": "httpRoute.parentRefs"} {
		if _, err := helm(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// A ServiceMonitor is one, selects a Service of the chart, and is not there beside PodMonitors.
func TestServiceMonitor(t *testing.T) {
	all := read(t, rendered(t, "serviceMonitor.enabled=true", "gateway.enabled=true",
		"serviceMonitor.scrapeTimeout=5s"))
	for name, service := range map[string]string{"faas-infer": "faas-infer-replicas",
		"gateway": "gateway-replicas"} {
		monitor, ok := all["ServiceMonitor openfaas/"+name]
		selected, _, _ := metav1.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		if !ok || len(selected) == 0 {
			t.Errorf("%s: there is none that selects", name)
		}
		found := 0
		for key, o := range all {
			matches := o.GetKind() == "Service"
			for label, value := range selected {
				matches = matches && o.GetLabels()[label] == value
			}
			if matches {
				found++
				if key != "Service openfaas/"+service {
					t.Errorf("%s selects %s", name, key)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s selects %d Services", name, found)
		}
	}
	if _, ok := all["NetworkPolicy openfaas/faas-infer-monitor"]; !ok {
		t.Error("Prometheus may not connect")
	}
	if _, err := helm(t, "serviceMonitor.enabled=true", "podMonitor.enabled=true"); err == nil ||
		!strings.Contains(err.Error(), "scraped twice") {
		t.Errorf("both: %v", err)
	}
}

// What the values add to the provider's pods is in them, and probes keep their paths.
func TestExtras(t *testing.T) {
	text := rendered(t, "extraEnv[0].name=A", "extraEnv[0].value=b", "extraEnvFrom[0].secretRef.name=proxy",
		"extraVolumes[0].name=plugins", "extraVolumes[0].emptyDir.sizeLimit=1Gi",
		"extraVolumeMounts[0].name=plugins", "extraVolumeMounts[0].mountPath=/plugins",
		"extraContainers[0].name=side", "extraContainers[0].image=s", "extraInitContainers[0].name=first",
		"extraInitContainers[0].image=f",
		"hostAliases[0].ip=10.0.0.1", "hostAliases[0].hostnames={registry}", "dnsPolicy=Default",
		"dnsConfig.nameservers={10.0.0.2}", `deploymentAnnotations.example\.com/a=b`,
		"revisionHistoryLimit=7", "strategy.type=Recreate",
		"livenessProbe.initialDelaySeconds=5", "podDisruptionBudget.minAvailable=0",
		"podDisruptionBudget.unhealthyPodEvictionPolicy=AlwaysAllow", "extraObjects[0].kind=ConfigMap",
		"extraObjects[0].apiVersion=v1", "extraObjects[0].metadata.name=more",
		"gateway.enabled=true", "gateway.replicas=2", "gateway.extraEnv[0].name=upstream_timeout",
		"gateway.extraEnv[0].value=9m")
	for _, want := range []string{"name: proxy\n", "mountPath: /plugins\n", "name: side\n",
		"initContainers:\n", "- registry\n", "dnsPolicy: Default\n", "- 10.0.0.2\n", "example.com/a: b\n",
		"revisionHistoryLimit: 7\n", "type: Recreate\n",
		"initialDelaySeconds: 5\n", "minAvailable: 0\n", "unhealthyPodEvictionPolicy: AlwaysAllow\n",
		"name: more\n", "value: 9m\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	all := read(t, text)
	if _, ok := all["PodDisruptionBudget openfaas/gateway"]; !ok {
		t.Error("a drain may stop all gateways")
	}
	strategy, _, _ := metav1.NestedMap(all["Deployment openfaas/faas-infer"].Object, "spec", "strategy")
	if len(strategy) != 1 {
		t.Errorf("the strategy is %v", strategy)
	}
	if text := rendered(t, "podDisruptionBudget.enabled=false"); strings.Contains(text,
		"kind: PodDisruptionBudget\n") {
		t.Error("there is a budget")
	}
}
