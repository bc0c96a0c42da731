package install

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// toggles are values that turn on one part of the chart each, with what that part needs.
var toggles = map[string][]string{
	"nothing":     nil,
	"no policies": {"networkPolicies=false", "podDisruptionBudget.enabled=false", "functions.create=false"},
	"nothing of others": {"rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=mine",
		"crds.install=false"},
	"gateway": {"gateway.enabled=true", "gateway.replicas=2"},
	"nats":    {"nats.enabled=true"},
	"another nats": {"nats.url=tls://n.example.com", "nats.replicas=3", "nats.credentialsSecret=a",
		"nats.tlsSecret=b", "gateway.enabled=true"},
	"prometheus": {"prometheus.enabled=true", "dashboard.enabled=true"},
	"pod monitor": {"podMonitor.enabled=true", "podMonitor.scrapeTimeout=5s",
		"prometheusRule.enabled=true", "gateway.enabled=true"},
	"service monitor": {"serviceMonitor.enabled=true", "serviceMonitor.relabelings[0].action=labelmap",
		"serviceMonitor.relabelings[0].regex=a", "gateway.enabled=true"},
	"builder": {"builder.enabled=true", "builder.base=registry.example.com/base"},
	"namespaces": {"functions.allNamespaces=true", "functions.manageNamespaces=true",
		"functions.newNamespaces.quota.pods=10", "defaultDeny=true"},
	"copies": {"copies.enabled=true"},
	"GPUs": {"nodeAgent.enabled=true", "nodeAgent.devicePluginGPUs=1",
		"functions.podSecurity=privileged"},
	"TLS":          {"tls.enabled=true", "nats.enabled=true", "gateway.enabled=true"},
	"cert-manager": {"tls.enabled=true", "tls.certManager.enabled=true", "nats.enabled=true"},
	"ingress": {"ingress.enabled=true", "ingress.className=nginx", "ingress.hosts[0].host=faas.example.com",
		"ingress.hosts[1].host=b.example.com",
		"ingress.hosts[1].paths[0].path=/function", "ingress.hosts[1].paths[0].pathType=Exact",
		"ingress.tls[0].secretName=a"},
	"route": {"httpRoute.enabled=true", "httpRoute.parentRefs[0].name=public",
		"httpRoute.parentRefs[0].namespace=gateways", "httpRoute.hostnames={faas.example.com}",
		"httpRoute.rules[0].timeouts.request=300s"},
	"service": {"service.type=LoadBalancer", "service.port=80",
		"service.loadBalancerSourceRanges={10.0.0.0/8}", "service.externalTrafficPolicy=Local"},
	"secrets": {"generateBasicAuth=true", "imagePullSecrets={a}", "global.imagePullSecrets={b}",
		"global.imageRegistry=r.example.com:5000"},
	"extras": {"extraEnv[0].name=A", "extraEnv[0].value=b", "extraEnvFrom[0].secretRef.name=c",
		"extraVolumes[0].name=plugins", "extraVolumes[0].emptyDir.medium=Memory",
		"extraVolumeMounts[0].name=plugins", "extraVolumeMounts[0].mountPath=/plugins",
		"hostAliases[0].ip=10.0.0.1", "hostAliases[0].hostnames={r}", "dnsPolicy=None",
		"dnsConfig.nameservers={10.0.0.2}",
		"strategy.type=Recreate", "podDisruptionBudget.minAvailable=50%",
		"podDisruptionBudget.unhealthyPodEvictionPolicy=AlwaysAllow", "commonLabels.team=a",
		"commonAnnotations.team=a",
		"extraObjects[0].apiVersion=v1", "extraObjects[0].kind=ConfigMap",
		"extraObjects[0].metadata.name=more", "extraObjects[0].metadata.namespace=openfaas"},
	"names":      {"fullnameOverride=serving", "nameOverride=models", "functions.namespace=models"},
	"everything": everything,
}

// defineOthers defines the objects that the chart makes for the Prometheus Operator, the Gateway API and cert-manager.
func defineOthers(t *testing.T) {
	t.Helper()
	script := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "definitions.sh"))
	definitions, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "", "apply", "--server-side", "-f", strings.TrimSpace(string(definitions)))
	kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
}

// Helm finds nothing to complain about with any of the values, and a real API server takes all objects: it knows
// every field and validates what it would store. It has the definitions of the Prometheus Operator, the Gateway API
// and cert-manager.
func TestChartApplies(t *testing.T) {
	defineOthers(t)
	kubectl(t, definition(t), "apply", "--server-side", "--force-conflicts", "-f", "-")
	kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	kubectl(t, namespaces+"---\n{apiVersion: v1, kind: Namespace, metadata: {name: models}}\n", "apply",
		"--server-side", "-f", "-")
	chart := filepath.Join(root, "yaml", "chart", "faas-infer")
	for name, values := range toggles {
		t.Run(name, func(t *testing.T) {
			args := []string{"lint", "--strict", "--quiet", "--kube-version", testcluster.Version, chart}
			for _, v := range values {
				args = append(args, "--set", v)
			}
			if out, err := exec.CommandContext(t.Context(), program(t), args...).Output(); err != nil ||
				strings.Contains(string(out), "[WARNING]") {
				t.Errorf("%v: %s", err, out)
			}
			text := rendered(t, values...)
			await(t, "the API server knows all kinds", func(ctx context.Context) error {
				_, err := cluster.Kubectl(ctx, text, "apply", "--server-side", "--force-conflicts",
					"--dry-run=server", "--validate=strict", "-f", "-")
				if err != nil && !strings.Contains(err.Error(), "no matches for kind") {
					t.Fatal(err)
				}
				return err
			})
		})
	}
	// Each part that the values turn on is on here, too.
	for _, v := range everything {
		if key, _, _ := strings.Cut(v, "="); strings.HasSuffix(key, ".enabled") {
			found := false
			for name, values := range toggles {
				found = found || name != "everything" && slices.Contains(values, v)
			}
			if !found {
				t.Errorf("nothing turns on %s alone", key)
			}
		}
	}
}

// The chart can be packaged with the version of a release, pushed to a registry, and installed from there.
func TestPush(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l,
		Config: &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}}
	server.Start()
	defer server.Close()
	dir, address := t.TempDir(), "oci://"+l.Addr().String()+"/charts"
	helm := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), program(t), args...)
		c.Env = append(c.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	helm("package", filepath.Join(root, "yaml", "chart", "faas-infer"), "--version", "1.2.3", "--app-version",
		"v1.2.3", "--destination", dir)
	helm("push", filepath.Join(dir, "faas-infer-1.2.3.tgz"), address, "--plain-http")
	if text := helm("show", "chart", address+"/faas-infer", "--version", "1.2.3",
		"--plain-http"); !strings.Contains(text, "appVersion: v1.2.3\n") {
		t.Errorf("the chart in the registry is %s", text)
	}
	text := helm("template", "faas-infer", address+"/faas-infer", "--version", "1.2.3", "--plain-http",
		"--namespace", "openfaas", "--kube-version", testcluster.Version)
	for _, want := range []string{"image: registry.example.com/faas-infer/provider:v1.2.3\n",
		"helm.sh/chart: faas-infer-1.2.3\n", "kind: CustomResourceDefinition\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
}
