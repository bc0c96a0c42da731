package testcluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// startRest starts what only some tests need. A node takes even its pods' first
// image from the registry.
func (c *Cluster) startRest(ctx context.Context) (err error) {
	if !c.options.Node && !c.options.Registry {
		return nil
	}
	address := "127.0.0.1"
	if c.options.Node {
		address = nodeAddress // Pods have other addresses that mean the machine itself.
	}
	if c.registry, err = StartRegistry(c.file("registry"), address); err != nil || !c.options.Node {
		return err
	}
	if err := c.ca.Issue("hub", "hub", nil, node.Hub); err != nil {
		return err
	}
	if err := c.registry.ServeTLS(node.HubAddress+":443", c.ca.File("hub.crt"), c.ca.File("hub.key")); err != nil {
		return err
	}
	image, err := RegistryImage(map[string]string{"/pause": c.program("pause")}, nil, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
	if err != nil {
		return err
	}
	pause, err := c.registry.Push("pause:1", image)
	if err != nil {
		return err
	}
	began, config := time.Now(), c.options.KubeletConfig
	if c.options.Services {
		config += clusterDNS
	}
	c.node, err = node.Start(ctx, node.Options{Dir: c.file("node"), Logs: c.Logs(), Binaries: c.binaries, Name: NodeName,
		Kubeconfig: c.file("kubelet.kubeconfig"), Authority: c.ca.File("ca.crt"), Certificate: c.ca.File("kubelet.crt"), Key: c.ca.File("kubelet.key"),
		Pause: pause, Registry: c.registry.Host(), KubeletConfig: config})
	if err != nil {
		return err
	}
	if err := c.await(ctx, "the node", func() error { return c.nodeReady(ctx) }); err != nil {
		return err
	}
	c.say("node ready after %v", time.Since(began).Round(time.Millisecond))
	if !c.options.Services {
		return nil
	}
	began = time.Now()
	if err := c.startServices(ctx); err != nil {
		return err
	}
	c.say("services, names and network policies after %v", time.Since(began).Round(time.Millisecond))
	return nil
}

func (c *Cluster) nodeReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	n, err := client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(n.Spec.Taints) > 0 {
		return fmt.Errorf("it is tainted: %v", n.Spec.Taints)
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not ready")
}

// NodePossible is nil where a cluster can have a real node; else it says what is
// missing.
func NodePossible(ctx context.Context) error {
	binaries, err := Binaries(ctx)
	if err != nil {
		return err
	}
	return node.Possible(binaries)
}

// RegistryHost is the registry's address, with which names of its images begin, or
// "" where there is none. It has no passwords and no TLS.
func (c *Cluster) RegistryHost() string {
	if c.registry == nil {
		return ""
	}
	return c.registry.Host()
}

// Authority is the file of the certificate that all of the cluster's servers can be
// checked by. With Options.Node that holds for docker.io, too, which is the
// cluster's registry there: SSL_CERT_FILE makes a program believe it.
func (c *Cluster) Authority() string { return c.ca.File("ca.crt") }

// PushTools puts an image with a shell and the usual tools in the registry, which
// belong to Debian's busybox, and further files, by their path in it. It returns the
// image's name.
func (c *Cluster) PushTools(name string, files map[string]string, config v1.Config) (string, error) {
	if c.registry == nil {
		return "", errors.New("the cluster was started without Options.Registry")
	}
	all := map[string]string{"/bin/busybox": filepath.Join(c.binaries, "node/bin/busybox")}
	for to, from := range files {
		all[to] = from
	}
	links := map[string]string{}
	for _, tool := range tools {
		links["/bin/"+tool] = "busybox"
	}
	image, err := RegistryImage(all, links, config)
	if err != nil {
		return "", err
	}
	return c.registry.Push(name, image)
}

// tools are those of busybox that tests' functions use.
var tools = []string{"sh", "cat", "env", "echo", "false", "true", "sleep", "head", "tail", "tr", "wc", "printf", "ls", "id", "touch", "dd",
	"httpd", "nc", "wget", "grep", "seq", "test", "yes", "sort", "sed", "awk", "mkdir", "rm", "ps", "kill", "date", "od"}
