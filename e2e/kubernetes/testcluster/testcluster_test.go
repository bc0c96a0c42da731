package testcluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// A control plane with two kwok nodes runs a Deployment's pods. After a stop of its API
// server it has all objects again.
func TestControlPlane(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	began := time.Now()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("started in %v", time.Since(began))
	if err := c.AddNodes(ctx, 2, "4", "8Gi", func(n *corev1.Node) { n.Labels["disktype"] = "ssd" }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "", "create", "deployment", "web", "--image=example.com/web:1", "--replicas=3"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Available", "deployment/web", "--timeout=5m"); err != nil {
		t.Fatal(err)
	}
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, "", "get", "nodes"); err == nil {
		t.Error("the API server answers although it was stopped")
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := c.Kubectl(ctx, "", "get", "nodes", "-l", "disktype=ssd", "-o", "name")
	if err != nil || strings.Count(out, "node/kwok-") != 2 {
		t.Errorf("nodes %q, %v", out, err)
	}
}

func TestNodesAmountsAreRead(t *testing.T) {
	var c testcluster.Cluster
	if err := c.AddNodes(t.Context(), 1, "4", "8Gi", nil); err == nil || !strings.Contains(err.Error(), "Options.Kwok") {
		t.Error(err)
	}
}
