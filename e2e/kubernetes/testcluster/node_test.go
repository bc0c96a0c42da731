package testcluster_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

const webPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
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

// A pod on the real node takes its image from the registry, answers at its address,
// has logs and can be entered.
func TestNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := testcluster.NodePossible(ctx); err != nil {
		t.Skipf("*** NO REAL NODE: %v ***", err)
	}
	began := time.Now()
	c, err := testcluster.Start(ctx, testcluster.Options{Node: true, Log: t.Output()})
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
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "pod/web", "--timeout=120s"); err != nil {
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
	if out, err := c.Kubectl(ctx, "", "logs", "web"); err != nil || strings.TrimSpace(out) != "started" {
		t.Errorf("logs %q, %v", out, err)
	}
	if out, err := c.Kubectl(ctx, "", "exec", "web", "--", "id", "-u"); err != nil || strings.TrimSpace(out) != "65532" {
		t.Errorf("exec %q, %v", out, err)
	}
}
