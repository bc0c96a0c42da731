package backend_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
	"github.com/faas-infer/faas-infer/instance/engine"
)

// pool is a group of nodes that begins empty. Nodes without pods are removed after some seconds.
const pool = `apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: models}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s}
  template:
    metadata: {labels: {pool: models}}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [c-8x-amd64-linux]}]
`

// withKarpenter starts a cluster without nodes, and Karpenter.
func withKarpenter(t *testing.T) (*testcluster.Cluster, clientset.Interface) {
	t.Helper()
	if os.Getenv("FAAS_INFER_KARPENTER") == "" {
		t.Skip("run by make test-karpenter: Karpenter takes minutes to build")
	}
	var complaint strings.Builder
	script := exec.CommandContext(t.Context(), "../../../scripts/karpenter.sh")
	script.Stderr = &complaint
	out, err := script.Output()
	if err != nil {
		t.Fatal(err, complaint.String())
	}
	dir := strings.TrimSpace(string(out))
	c, err := testcluster.Start(t.Context(), testcluster.Options{Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	definitions, err := filepath.Glob(filepath.Join(dir, "crds", "*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatal("Karpenter has no resource definitions", err)
	}
	for _, file := range definitions {
		if err := c.Define(t.Context(), file); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.Kubectl(t.Context(), pool, "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	environment := append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "SYSTEM_NAMESPACE=kube-system", "DISABLE_LEADER_ELECTION=true",
		"CLUSTER_NAME=test", "KUBERNETES_MIN_VERSION=1.19.0-0", "BATCH_IDLE_DURATION=100ms", "BATCH_MAX_DURATION=1s")
	for _, port := range []string{"METRICS_PORT", "HEALTH_PROBE_PORT"} {
		free, err := engine.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		environment = append(environment, fmt.Sprintf("%s=%d", port, free))
	}
	log := filepath.Join(t.TempDir(), "karpenter.log")
	p, err := node.StartProcess(log, environment, filepath.Join(dir, "karpenter"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Alive(), p.Kill()); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("Karpenter's log ends with\n%s%v", text[max(0, len(text)-6000):], err)
		}
	})
	client, err := clientset.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// Karpenter adds a node for each placeholder, and none for one that has got a node. It removes the nodes
// when the placeholders are gone.
func TestPlaceholdersMakeKarpenterAddNodes(t *testing.T) {
	c, client := withKarpenter(t)
	if err := c.Namespaces(t.Context(), nil, "openfaas-fn"); err != nil {
		t.Fatal(err)
	}
	p := placeholders(t, client, "openfaas-fn", "pool=models")
	want := func(n int) {
		p.Want([]kubernetes.MissingNodes{{Kind: "cpu", Count: n, Size: cluster.Resources{CPU: 7000, Memory: 8 << 30}}})
	}
	have := func(n int) func() string {
		return func() string {
			nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "pool=models"})
			if err != nil {
				return err.Error()
			}
			pods, err := client.CoreV1().Pods("openfaas-fn").List(t.Context(), metav1.ListOptions{LabelSelector: kubernetes.PlaceholderLabel})
			if err != nil {
				return err.Error()
			}
			running := 0
			for _, pod := range pods.Items {
				if pod.Status.Phase == corev1.PodRunning {
					running++
				}
			}
			if len(nodes.Items) == n && running == n && len(pods.Items) == n {
				return ""
			}
			return fmt.Sprintf("%d nodes, %d of %d placeholders run", len(nodes.Items), running, len(pods.Items))
		}
	}
	want(1)
	eventually(t, "a node for the first placeholder", have(1))
	want(3)
	eventually(t, "a node for each of three", have(3))
	want(0)
	eventually(t, "no node", have(0))
}
