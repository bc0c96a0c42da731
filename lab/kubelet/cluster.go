package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// User and Password are those of the provider.
const (
	User     = "admin"
	Password = "secret"
)

// Cluster is a Kubernetes with one real node and faas-infer's provider in pods.
type Cluster struct {
	*testcluster.Cluster
	Built
	// Log gets a message for each step.
	Log io.Writer
}

// Start starts a cluster with what [Prepare] has built. Call [Cluster.Install] then, and Stop at the end.
func Start(ctx context.Context, log io.Writer) (*Cluster, error) {
	if !node.Isolated() {
		return nil, errors.New("a real node needs root and Linux namespaces, which this machine does not give")
	}
	built, err := prepared()
	if err != nil {
		return nil, err
	}
	c, err := testcluster.Start(ctx, testcluster.Options{Node: true, Services: true, Log: log})
	if err != nil {
		return nil, err
	}
	return &Cluster{Cluster: c, Built: built, Log: log}, nil
}

// Install installs faas-infer from yaml/, with requests for CPU that leave room for others. It pushes the base image
// of functions.
func (c *Cluster) Install(ctx context.Context) error {
	yaml := func(name string) string { return filepath.Join(c.Checkout, "yaml", name) }
	image := c.RegistryHost() + "/faas-infer/provider:latest"
	base := c.File("base.tar")
	if _, err := Run(ctx, c.Kubernetes, "image", "provider", "--base", base, "--push", image); err != nil {
		return err
	}
	if _, err := Run(ctx, c.Kubernetes, "image", "push", base, c.Base()); err != nil {
		return err
	}
	text, err := os.ReadFile(yaml("provider.yaml"))
	if err != nil {
		return err
	}
	edits := strings.NewReplacer("image: faas-infer/provider\n", "image: "+image+"\n",
		"requests: {cpu: 500m, memory: 512Mi", "requests: {cpu: 100m, memory: 128Mi")
	manifest := edits.Replace(string(text))
	if err := c.Apply(ctx, "", "-f", yaml("options/namespaces/namespaces.yaml")); err != nil {
		return err
	}
	if err := c.Define(ctx, yaml("crd.yaml")); err != nil {
		return err
	}
	if err := c.Apply(ctx, "", "-f", yaml("rbac.yaml")); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth",
		"--from-literal=basic-auth-user="+User, "--from-literal=basic-auth-password="+Password); err != nil {
		return err
	}
	if err := c.Apply(ctx, manifest, "-f", "-"); err != nil {
		return err
	}
	if err := c.RolledOut(ctx, "openfaas", "faas-infer"); err != nil {
		return err
	}
	// The node has no route to the services' own addresses.
	_, err = c.Kubectl(ctx, "", "-n", "openfaas", "patch", "service/faas-infer",
		"--patch", `{"spec":{"type":"NodePort"}}`)
	return err
}

// Base is the name of the base image of functions in the cluster's registry.
func (c *Cluster) Base() string { return c.RegistryHost() + "/faas-infer/base:latest" }

// Address returns the provider's host and port.
func (c *Cluster) Address(ctx context.Context) (string, error) {
	port, err := c.Kubectl(ctx, "", "-n", "openfaas", "get", "service/faas-infer",
		"-o", "jsonpath={.spec.ports[0].nodePort}")
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(c.Addresses.Node, strings.TrimSpace(port))
	return address, opened(ctx, address)
}

// opened waits until a node's port leads to a pod, which is a little later than its Service exists.
func opened(ctx context.Context, address string) error {
	for end := time.Now().Add(time.Minute); ; {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("nothing answers at the service's port: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Apply runs kubectl apply.
func (c *Cluster) Apply(ctx context.Context, stdin string, arguments ...string) error {
	_, err := c.Kubectl(ctx, stdin, append([]string{"apply"}, arguments...)...)
	return err
}

// RolledOut waits until a Deployment is available.
func (c *Cluster) RolledOut(ctx context.Context, namespace, name string) error {
	_, err := c.Kubectl(ctx, "", "-n", namespace, "rollout", "status", "deployment/"+name, "--timeout=5m")
	if err != nil {
		pods, _ := c.Kubectl(ctx, "", "-n", namespace, "get", "pods,events", "-o", "wide") // For the error's reader.
		return fmt.Errorf("%w\n%s", err, pods)
	}
	return nil
}

// Show prints what the cluster runs, for the reader of an error: pods, functions, and other kinds of objects.
func (c *Cluster) Show(ctx context.Context, more ...string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, what := range append([]string{"pods", "functions.faas-infer.dev"}, more...) {
		out, err := c.Kubectl(ctx, "", "get", what, "-A", "-o", "wide")
		if err != nil {
			out += err.Error()
		}
		fmt.Fprintln(c.Log, out)
	}
}

// keepVariable names a directory to which the logs go of a measurement that fails.
const keepVariable = "FAAS_INFER_KEEP_LOGS"

// KeepLogs copies the cluster's logs if somebody wants them.
func (c *Cluster) KeepLogs() {
	keep := os.Getenv(keepVariable)
	if keep == "" {
		return
	}
	for _, from := range []string{c.Logs(), c.Dir() + "/node/pod-logs"} {
		if err := os.CopyFS(filepath.Join(keep, time.Now().Format("150405.000")), os.DirFS(from)); err != nil {
			fmt.Fprintln(c.Log, "the logs are not kept:", err)
		}
	}
}

// Processes finds the processes of a model's pods on the node, by the function's name.
func Processes(function string) (pids []int) { return testcluster.Processes(function) }
