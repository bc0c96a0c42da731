package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// everything turns on all that the chart can install.
var everything = []string{
	"gateway.enabled=true", "nats.enabled=true", "prometheus.enabled=true", "dashboard.enabled=true", "builder.enabled=true",
	"builder.base=registry.example.com/base", "functions.allNamespaces=true", "functions.manageNamespaces=true", "nodeAgent.enabled=true",
	"functions.podSecurity=privileged", "functions.newNamespaces.podSecurity=privileged", "copies.enabled=true", "podMonitor.enabled=true", "prometheusRule.enabled=true",
	"ingress.enabled=true", "ingress.hosts[0].host=faas.example.com", "httpRoute.enabled=true",
	"httpRoute.parentRefs[0].name=public", "generateBasicAuth=true",
}

// Helm refuses values that cannot work, and keys that the chart does not know, before it changes
// anything. The complaint names the key.
func TestSchema(t *testing.T) {
	for value, want := range map[string]string{
		"replicas=-1":                             "/replicas",
		"replicas=two":                            "/replicas",
		"replica=3":                               "replica",
		"gateway.enable=true":                     "enable",
		"drain=300":                               "/drain",
		"drain=0":                                 "/drain",
		"terminationGracePeriodSeconds=29":        "/terminationGracePeriodSeconds",
		"extraArgs={log-level=debug}":             "/extraArgs/0",
		"extraArgs={5}":                           "/extraArgs/0",
		"extraEnv[0].value=1":                     "/extraEnv/0",
		"functions.podSecurity=strict":            "/functions/podSecurity",
		"functions.namespace=Models":              "/functions/namespace",
		"functions.newNamespaces.quota.pods=many": "/functions/newNamespaces/quota/pods",
		"nats.url=nats.example.com":               "/nats/url",
		"nats.replicas=6":                         "/nats/replicas",
		"nats.storage=-1Gi":                       "/nats/storage",
		"copies.directory=copies":                 "/copies/directory",
		"resources.requests.cpu=-1":               "/resources/requests/cpu",
		"instances.tmpSize=big":                   "/instances/tmpSize",
		"imagePullSecrets={Reg}":                  "/imagePullSecrets/0",
		"serviceMonitor.interval=often":           "/serviceMonitor/interval",
		"podMonitor.scrapeTimeout=10":             "/podMonitor/scrapeTimeout",
		"fullnameOverride=1st":                    "/fullnameOverride",
		"nameOverride=a b":                        "/nameOverride",
		"commonLabels.team=a b":                   "/commonLabels/team",
		"image.digest=latest":                     "/image/digest",
		"image.registry=https://r.example.com":    "/image/registry",
		"image.repository=r.example.com/p@sha256": "/image/repository",
		"gateway.image.tag=":                      "/gateway/image",
		"service.type=Headless":                   "/service/type",
		"service.port=0":                          "/service/port",
		"ingress.hosts={a.example.com}":           "/ingress/hosts/0",
		"extraVolumeMounts[0].name=a":             "/extraVolumeMounts/0",
		"livenessProbe.httpGet.path=/":            "httpGet",
		"podDisruptionBudget.minAvailable=half":   "/podDisruptionBudget/minAvailable",
		"strategy.type=Blue":                      "/strategy/type",
		"replicaCount=3":                          "replicaCount",
		"serviceAccount=null,crds=null":           "missing properties 'serviceAccount', 'crds'", // As with --reuse-values.
	} {
		if _, err := helm(t, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not name %s", value, err, want)
		}
	}
	for _, values := range [][]string{{"nats.replicas=3"}, {"nats.enabled=true", "nats.url=nats://nats.example.com"}} {
		if _, err := helm(t, values...); err == nil || !strings.Contains(err.Error(), "nats.url") {
			t.Errorf("%v: %v", values, err)
		}
	}
	// A flag's value may be an item of its own, and a parent chart may set the condition of this one.
	for _, values := range [][]string{{"extraArgs={--log-level,debug}"}, {"extraArgs={--queue-limit,100}"}, {"replicas=0"}, {"gateway.enabled=true", "gateway.replicas=0"}, {"enabled=true"}, {"global.registry=r.example.com"}} {
		if _, err := helm(t, values...); err != nil {
			t.Errorf("%v: %v", values, err)
		}
	}
}

// Pods with a share of a GPU mount directories of the node. The chart refuses to make namespaces
// that would refuse these pods.
func TestNewNamespacesWithGPUs(t *testing.T) {
	values := []string{"nodeAgent.enabled=true", "functions.podSecurity=privileged", "functions.manageNamespaces=true"}
	for level, works := range map[string]bool{"restricted": false, "baseline": false, "privileged": true, "": true} {
		_, err := helm(t, append(values, "functions.newNamespaces.podSecurity="+level)...)
		if works != (err == nil) || err != nil && !strings.Contains(err.Error(), "functions.newNamespaces.podSecurity is \""+level+"\"") {
			t.Errorf("with the level %q: %v", level, err)
		}
	}
	if _, err := helm(t, append(values, "functions.manageNamespaces=false")...); err != nil {
		t.Errorf("without manageNamespaces: %v", err)
	}
	// The manifests have an option for it. The last of several equal flags holds.
	text := kustomized(t, []string{"namespaces", "all-namespaces", "manage-namespaces", "gpu", "gpu-namespaces"}, []string{"node-agent.yaml"})
	if last := text[strings.LastIndex(text, "--namespace-pod-security="):]; !strings.HasPrefix(last, "--namespace-pod-security=privileged\n") {
		t.Errorf("the provider makes namespaces with %.60s", last)
	}
	variables, _, _ := metav1.NestedSlice(read(t, text)["ValidatingAdmissionPolicy /faas-infer-namespaces"].Object, "spec", "variables")
	if got := variables[0].(map[string]any)["expression"]; got != `"privileged"` {
		t.Errorf("the policy allows the level %v", got)
	}
}

// resolved returns the part of a schema to which a reference leads. Of alternatives it is the last one, an object.
func resolved(schema, part map[string]any) map[string]any {
	if name, ok := part["$ref"].(string); ok {
		all := schema["$defs"].(map[string]any)
		return resolved(schema, all[strings.TrimPrefix(name, "#/$defs/")].(map[string]any))
	}
	for _, key := range []string{"allOf", "anyOf"} {
		if all, ok := part[key].([]any); ok && part["properties"] == nil {
			return resolved(schema, all[len(all)-1].(map[string]any))
		}
	}
	return part
}

// The schema knows every key of values.yaml, and no others.
func TestSchemaHasAllValues(t *testing.T) {
	chart := filepath.Join(root, "yaml", "chart", "faas-infer")
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(filepath.Join(chart, "values.schema.json")); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var compare func(at string, values, schema map[string]any)
	compare = func(at string, values, part map[string]any) {
		known, closed := resolved(schema, part)["properties"].(map[string]any)
		if !closed {
			return
		}
		// Values that have the shape of Kubernetes' own need not have all of its keys.
		own := part["$ref"] != "#/$defs/resources" && part["$ref"] != "#/$defs/probe"
		for key := range known {
			if _, ok := values[key]; !ok && own && at+key != "enabled" {
				t.Errorf("values.yaml has no %s%s", at, key)
			}
		}
		for key, value := range values {
			of, ok := known[key].(map[string]any)
			if !ok {
				t.Errorf("the schema has no %s%s", at, key)
				continue
			}
			if inner, ok := value.(map[string]any); ok {
				compare(at+key+".", inner, of)
			}
		}
	}
	compare("", values, schema)
}

// pods returns the pod templates of all objects, by the object's key.
func pods(t *testing.T, all map[string]metav1.Unstructured) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for key, o := range all {
		if pod, ok, _ := metav1.NestedMap(o.Object, "spec", "template"); ok {
			found[key] = pod
		} else if o.GetKind() == "Pod" {
			found[key] = o.Object
		}
	}
	if len(found) == 0 {
		t.Fatal("there are no pods")
	}
	return found
}

// Every pod of the chart has the pull secrets, and the provider, the gateway, NATS and Prometheus
// each their own placement, labels and annotations.
func TestPlacement(t *testing.T) {
	values := append([]string{"imagePullSecrets={regcred,other}"}, everything...)
	components := map[string]string{"": "Deployment openfaas/faas-infer", "gateway.": "Deployment openfaas/gateway", "nats.": "StatefulSet openfaas/nats", "prometheus.": "Deployment openfaas/prometheus"}
	for prefix := range components {
		mark := "of-" + strings.TrimSuffix(prefix, ".")
		values = append(values,
			prefix+"nodeSelector.pool="+mark+"x", prefix+"tolerations[0].key="+mark+"x", prefix+"priorityClassName="+strings.TrimSuffix(mark, "-")+"-class",
			prefix+"affinity.podAntiAffinity.note="+mark+"x", prefix+"topologySpreadConstraints[0].topologyKey="+mark+"x",
			prefix+"podLabels.team="+mark+"x", prefix+`podAnnotations.example\.com/team=`+mark+"x")
	}
	found := pods(t, read(t, rendered(t, values...)))
	for key, pod := range found {
		if names, _, _ := metav1.NestedSlice(pod, "spec", "imagePullSecrets"); len(names) != 2 {
			t.Errorf("%s has the pull secrets %v", key, names)
		}
	}
	for prefix, key := range components {
		mark := "of-" + strings.TrimSuffix(prefix, ".")
		text, err := json.Marshal(found[key])
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"nodeSelector":{"pool":"` + mark + `x"}`, `"tolerations":[{"key":"` + mark + `x"}]`, `"priorityClassName":"` + strings.TrimSuffix(mark, "-") + `-class"`,
			`"affinity":{"podAntiAffinity":{"note":"` + mark + `x"}}`, `"topologySpreadConstraints":[{"topologyKey":"` + mark + `x"}]`, `"team":"` + mark + `x"`, `"example.com/team":"` + mark + `x"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %s: %s", key, want, text)
			}
		}
	}
}

// OpenShift gives each namespace its users: with null, no pod of the chart asks for one, but those
// that need root on the node.
func TestNoUsers(t *testing.T) {
	values := append([]string{"podSecurityContext.runAsUser=null", "podSecurityContext.runAsGroup=null", "podSecurityContext.fsGroup=null"}, everything...)
	for key, pod := range pods(t, read(t, rendered(t, values...))) {
		if strings.Contains(key, "faas-infer-node") || strings.Contains(key, "faas-infer-copies") {
			continue
		}
		context, _, _ := metav1.NestedMap(pod, "spec", "securityContext")
		for _, field := range []string{"runAsUser", "runAsGroup", "fsGroup"} {
			if user, ok := context[field]; ok {
				t.Errorf("%s has %s %v", key, field, user)
			}
		}
		if context["runAsNonRoot"] != true {
			t.Errorf("%s has %v", key, context)
		}
	}
}

// The provider's startup, readiness and liveness are different questions.
func TestProbesApart(t *testing.T) {
	provider := pods(t, read(t, rendered(t)))["Deployment openfaas/faas-infer"]
	containers, _, _ := metav1.NestedSlice(provider, "spec", "containers")
	seen := map[string]bool{}
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		path, _, _ := metav1.NestedString(containers[0].(map[string]any), probe, "httpGet", "path")
		if path == "" || seen[path] {
			t.Errorf("%s asks %q", probe, path)
		}
		seen[path] = true
	}
}

// The objects for the Prometheus Operator select what they scrape, and it gets the alerts.
func TestMonitors(t *testing.T) {
	if text := rendered(t); strings.Contains(text, "monitoring.coreos.com") {
		t.Error("a cluster without the operator gets its objects")
	}
	all := read(t, rendered(t, append([]string{"podMonitor.labels.release=prom", "prometheusRule.labels.release=prom"}, everything...)...))
	deployment, monitor, rule := all["Deployment openfaas/faas-infer"], all["PodMonitor openfaas/faas-infer"], all["PrometheusRule openfaas/faas-infer"]
	pods, _, _ := metav1.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
	selected, _, _ := metav1.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	if len(selected) == 0 || monitor.GetLabels()["release"] != "prom" || rule.GetLabels()["release"] != "prom" {
		t.Errorf("the monitor selects %v; labels %v and %v", selected, monitor.GetLabels(), rule.GetLabels())
	}
	for key, value := range selected {
		if pods[key] != value {
			t.Errorf("the pods have the labels %v, the monitor selects %v", pods, selected)
		}
	}
	for _, key := range []string{"NetworkPolicy openfaas/faas-infer-monitor", "NetworkPolicy openfaas/gateway-monitor", "PodMonitor openfaas/gateway"} {
		if _, ok := all[key]; !ok {
			t.Errorf("there is no %s", key)
		}
	}
	groups, _, _ := metav1.NestedSlice(rule.Object, "spec", "groups")
	alerts := 0
	for _, g := range groups {
		rules, _, _ := metav1.NestedSlice(g.(map[string]any), "rules")
		alerts += len(rules)
	}
	if alerts < 5 {
		t.Errorf("only %d alerts", alerts)
	}
}

// `helm test` runs a pod that the network policies admit, with a command that the image has.
func TestHook(t *testing.T) {
	text, err := helmAs(t, "x", "serving", "gateway.enabled=true", "defaultDeny=true")
	if err != nil {
		t.Fatal(err)
	}
	all := read(t, text)
	pod, policy := all["Pod serving/x-test"], all["NetworkPolicy serving/x-test"]
	for _, o := range []metav1.Unstructured{pod, policy} {
		if o.GetAnnotations()["helm.sh/hook"] != "test" {
			t.Errorf("%s %s has the annotations %v", o.GetKind(), o.GetName(), o.GetAnnotations())
		}
	}
	ingress, _, _ := metav1.NestedSlice(policy.Object, "spec", "ingress")
	from, err := json.Marshal(ingress)
	if err != nil {
		t.Fatal(err)
	}
	if component := pod.GetLabels()["app.kubernetes.io/component"]; component == "" || !strings.Contains(string(from), `"`+component+`"`) {
		t.Errorf("the pod has the labels %v, the policy admits %s", pod.GetLabels(), from)
	}
	for _, want := range []string{"http://x.serving.svc:8081/readyz", "http://gateway.serving.svc:8080/healthz"} {
		if !strings.Contains(text, "- "+want+"\n") {
			t.Errorf("it does not ask %s", want)
		}
	}
}

// NATS is reached with credentials, the bundled one always and another as the values say. No
// password is in an argument.
func TestNatsCredentials(t *testing.T) {
	external := []string{"gateway.enabled=true", "nats.url=tls://n.example.com:4333", "nats.credentialsSecret=queue", "nats.tlsSecret=queue-tls", "nats.replicas=3"}
	for _, c := range []struct {
		values, want, not []string
	}{
		{[]string{"gateway.enabled=true", "nats.enabled=true"},
			[]string{"--nats-credentials=/var/secrets/nats\n", "secret: {secretName: nats-auth}", "kind: Secret\n", `"$(NATS_USERNAME):$(NATS_PASSWORD)@nats.openfaas.svc.cluster.local"`},
			[]string{"--nats-tls", "--nats-replicas", "SSL_CERT_DIR"}},
		{[]string{"nats.enabled=true", "nats.credentialsSecret=mine"}, []string{"secret: {secretName: mine}", "name: mine, key: gateway-password"}, []string{"kind: Secret\n", "nats-auth"}},
		{external, []string{"--nats=tls://n.example.com:4333\n", "--nats-credentials=/var/secrets/nats\n", "--nats-tls=/var/secrets/nats-tls\n", "--nats-replicas=3\n", "{name: SSL_CERT_DIR, value: \"/etc/ssl/certs:/var/nats-tls\"}", "optional: true, items: [{key: ca.crt, path: ca.crt}]",
			`"$(NATS_USERNAME):$(NATS_PASSWORD)@n.example.com"`, `value: "4333"`}, []string{"kind: StatefulSet", "kind: Secret\n", "SSL_CERT_FILE"}},
		{[]string{"gateway.enabled=true", "nats.url=nats://[2001:db8::1]:4333"}, []string{`value: "[2001:db8::1]"`, `value: "4333"`}, []string{`value: "db8"`}},
		{[]string{"gateway.enabled=true", "nats.url=nats://[2001:db8::1]"}, []string{`value: "[2001:db8::1]"`, `value: "4222"`}, nil},
		{[]string{"gateway.enabled=true", "nats.url=nats://n.example.com"}, []string{`value: "n.example.com"`, `value: "4222"`}, []string{"--nats-credentials", "NATS_PASSWORD"}},
	} {
		text := rendered(t, c.values...)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: there is no %s", c.values, want)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%v: there is %s", c.values, not)
			}
		}
	}
}

// The provider's flags in the chart exist.
func TestChartFlags(t *testing.T) {
	text := rendered(t, append([]string{"nats.replicas=3", "nats.tlsSecret=a", "nats.credentialsSecret=b", "nats.url=nats://n", "instances.storageRequest=64Mi", "instances.storageLimit=2Gi",
		"instances.tmpSize=1Gi", "instances.userNamespaces=true", "functions.newNamespaces.quota.pods=10"}, without(everything, "nats.enabled=true")...)...)
	checkFlags(t, text, 18)
	for _, want := range []string{"--instance-storage-request=64Mi\n", "--user-namespaces\n", "--namespace-quota=pods=10\n", "--namespace-pod-security=privileged\n", "--namespace-network-policies\n", "resources: [resourcequotas]"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

// without returns the values but for one.
func without(values []string, not string) (out []string) {
	for _, v := range values {
		if v != not {
			out = append(out, v)
		}
	}
	return out
}
