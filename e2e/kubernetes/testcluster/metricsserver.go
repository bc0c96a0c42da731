package testcluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
	"github.com/faas-infer/faas-infer/instance/engine"
)

// metricsServer is the name of the metrics server, of its user and of its service.
const metricsServer = "metrics-server"

// metricsManifest has the rights of the metrics server, and registers it as the server of
// metrics.k8s.io, at the service's only address.
const metricsManifest = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:metrics-server"}
rules:
  - {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
  - {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:metrics-server"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:metrics-server"}
subjects: [{kind: User, name: metrics-server}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "metrics-server:system:auth-delegator"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: User, name: metrics-server}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: metrics-server-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: User, name: metrics-server}]
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: https}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: %s
endpoints: [{addresses: [%q], conditions: {ready: true}}]
ports: [{name: https, port: %d, protocol: TCP}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: metrics-server, namespace: kube-system}
  group: metrics.k8s.io
  version: v1beta1
  caBundle: %s
  groupPriorityMinimum: 100
  versionPriority: 100
`

// StartMetricsServer starts Kubernetes' metrics server and waits until the API server
// forwards requests for metrics.k8s.io to it. The metrics server reads the real node's
// kubelet every 10 s, its shortest interval. It knows a pod after two readings.
func (c *Cluster) StartMetricsServer(ctx context.Context) error {
	if !c.options.Node || c.metrics != nil {
		return errors.New("a metrics server needs a cluster with Options.Node and without another metrics server")
	}
	program, err := script(ctx, "metrics-server.sh")
	if err != nil {
		return err
	}
	port, err := engine.FreePort()
	if err != nil {
		return err
	}
	// The metrics server has one certificate as a server and as a client of the API server
	// and the kubelet.
	if err := c.ca.Issue(metricsServer, metricsServer, nil, []string{metricsServer + ".kube-system.svc", c.Addresses.Node}); err != nil {
		return err
	}
	if err := c.writeKubeconfig(metricsServer); err != nil {
		return err
	}
	if err := c.admitMetricsServer(ctx, port); err != nil {
		return err
	}
	config := c.file(metricsServer + ".kubeconfig")
	if c.metrics, err = node.StartProcess(filepath.Join(c.Logs(), metricsServer+".log"), nil, program,
		"--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
		"--bind-address="+c.Addresses.Node, fmt.Sprintf("--secure-port=%d", port), "--tls-cert-file="+c.ca.File(metricsServer+".crt"),
		"--tls-private-key-file="+c.ca.File(metricsServer+".key"), "--kubelet-certificate-authority="+c.ca.File("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-request-timeout=5s", "--metric-resolution=10s"); err != nil {
		return err
	}
	return c.await(ctx, "the metrics server", func() error {
		_, err := c.Kubectl(ctx, "", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/pods")
		return err
	})
}

// admitMetricsServer gives the metrics server its rights and waits until they are in
// effect. It would exit if it could not read the API server's configuration for front
// proxies.
func (c *Cluster) admitMetricsServer(ctx context.Context, port int) error {
	authority, err := os.ReadFile(c.ca.File("ca.crt"))
	if err != nil {
		return err
	}
	manifest := fmt.Sprintf(metricsManifest, c.Addresses.Family, c.Addresses.Node, port, base64.StdEncoding.EncodeToString(authority))
	if _, err := c.Kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	return c.await(ctx, "the metrics server's rights", func() error {
		_, err := c.Kubectl(ctx, "", "get", "configmap/extension-apiserver-authentication", "-n", "kube-system", "--as", metricsServer)
		return err
	})
}

// StopMetricsServer kills the metrics server. Its registration at the API server stays.
func (c *Cluster) StopMetricsServer() error {
	if c.metrics == nil {
		return nil
	}
	err := c.metrics.Kill()
	c.metrics = nil
	return err
}
