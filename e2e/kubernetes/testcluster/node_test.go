package testcluster_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

const webPod = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: web
    image: %s
    command: ["/bin/sh", "-c", "mkdir /tmp/www && echo it works >/tmp/www/index.html && echo started && exec httpd -f -p 8080 -h /tmp/www"]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    resources: {limits: {cpu: 200m, memory: 32Mi}}
    volumeMounts: [{name: tmp, mountPath: /tmp}]
  volumes: [{name: tmp, emptyDir: {}}]
`

// webService is the pod's; denied lets nobody reach it.
const (
	webService = `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}`
	denied     = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, spec: {podSelector: {matchLabels: {app: web}}}}`
)

const visitorPod = `apiVersion: v1
kind: Pod
metadata: {name: visitor}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: visitor, image: %s, command: ["/bin/sleep", "1000"]}]
`

// A pod on the real node pulls its image from the registry. It answers at its address and
// at its service's name, unless a network policy forbids it. It has logs, and kubectl exec
// works.
func TestNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if err := testcluster.NodePossible(ctx); err != nil {
		t.Skipf("*** NO REAL NODE: %v ***", err)
	}
	began := time.Now()
	c, err := testcluster.Start(ctx, testcluster.Options{Node: true, Services: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("started in %v", time.Since(began))
	image, err := c.PushTools("tools:1", nil, v1.Config{})
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if _, err := c.Kubectl(ctx, fmt.Sprintf(webPod, image), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "pod/web", "--timeout=5m"); err != nil {
		out, _ := c.Kubectl(ctx, "", "describe", "pod", "web")
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("pod ready after %v", time.Since(began))
	ip, err := c.Kubectl(ctx, "", "get", "pod", "web", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(c.RegistryHost(), "10.") {
		t.Errorf("pods cannot reach the registry at %s", c.RegistryHost())
	}
	response, err := http.Get("http://" + ip + ":8080/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "it works\n" {
		t.Errorf("%q, %v", body, err)
	}
	// What it prints may come a moment after it answers.
	for end := time.Now().Add(time.Minute); ; {
		out, err := c.Kubectl(ctx, "", "logs", "web")
		if err == nil && strings.TrimSpace(out) == "started" {
			break
		}
		if time.Now().After(end) {
			t.Errorf("logs %q, %v", out, err)
			break
		}
	}
	if out, err := c.Kubectl(ctx, "", "exec", "web", "--", "id", "-u"); err != nil || strings.TrimSpace(out) != "65532" {
		t.Errorf("exec %q, %v", out, err)
	}
	visits(ctx, t, c)
}

// visits requests the first pod by its service's name from another pod. It uses kubectl
// because a statically linked busybox cannot resolve names.
func visits(ctx context.Context, t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	image, err := c.PushTools("visitor:1", map[string]string{"/bin/kubectl": filepath.Join(c.Binaries(), "bin/kubectl")}, v1.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []string{webService, fmt.Sprintf(visitorPod, image)} {
		if _, err := c.Kubectl(ctx, object, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "pod/visitor", "--timeout=5m"); err != nil {
		t.Fatal(err)
	}
	ask := func() (string, error) {
		return c.Kubectl(ctx, "", "exec", "visitor", "--", "kubectl", "--server", "http://web.default.svc.cluster.local", "--request-timeout", "2s", "get", "--raw", "/")
	}
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); ; {
			got, err := ask()
			if strings.TrimSpace(got) == want && (err == nil) == (want != "") {
				return
			}
			if time.Now().After(end) || ctx.Err() != nil {
				t.Fatalf("the visitor is answered %q, %v, not %q", got, err, want)
			}
		}
	}
	await("it works")
	if _, err := c.Kubectl(ctx, denied, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	await("")
	if _, err := c.Kubectl(ctx, "", "delete", "networkpolicy", "web"); err != nil {
		t.Fatal(err)
	}
	await("it works")
}
