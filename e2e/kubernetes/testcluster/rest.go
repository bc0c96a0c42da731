package testcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// startRest starts the registry, the node and the services if the options ask for them. A
// node pulls even the pause image from the registry.
func (c *Cluster) startRest(ctx context.Context) (err error) {
	if !c.options.Node && !c.options.Registry {
		return nil
	}
	address := "127.0.0.1"
	if c.options.Node {
		address = c.Addresses.Node // In a pod, a loopback address means the pod.
	}
	if c.registry, err = StartRegistry(c.file("registry"), address, c.Addresses.Registry); err != nil || !c.options.Node {
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
		config += fmt.Sprintf(clusterDNS, c.Addresses.DNS)
	}
	c.node, err = node.Start(ctx, node.Options{Addresses: c.Addresses, Dir: c.file("node"), Logs: c.Logs(), Binaries: c.binaries, Name: NodeName,
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

// NodePossible returns nil if a cluster can have a real node, otherwise an error that says
// what is missing.
func NodePossible(ctx context.Context) error {
	binaries, err := Binaries(ctx)
	if err != nil {
		return err
	}
	return node.Possible(binaries)
}

// HangRegistry makes a cluster's registry answer no request until resume is called.
func HangRegistry(c *Cluster) (resume func()) { return c.registry.Hang() }

// RegistryHost returns the registry's address, with which the names of its images begin, or
// "" if there is no registry. With Options.IPv6 they begin with a name, which only the node
// knows: names of images hold no such address. The registry has no passwords and no TLS.
func (c *Cluster) RegistryHost() string {
	if c.registry == nil {
		return ""
	}
	return c.registry.Host()
}

// Authority returns the file of the authority that signs the certificates of all of the
// cluster's servers. With Options.Node it also signs that of docker.io, which is the
// cluster's registry there. Programs trust the authority if SSL_CERT_FILE names the file.
func (c *Cluster) Authority() string { return c.ca.File("ca.crt") }

// PushTools pushes an image with a shell and the usual tools, from Debian's busybox, and
// with files by their path in the image. It returns the image's name.
func (c *Cluster) PushTools(name string, files map[string]string, config v1.Config) (string, error) {
	if c.registry == nil {
		return "", errors.New("the cluster was started without Options.Registry")
	}
	all := map[string]string{"/bin/busybox": filepath.Join(c.binaries, "node/bin/busybox")}
	maps.Copy(all, files)
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

// tools are the tools of busybox that functions of tests use.
var tools = []string{"sh", "cat", "env", "echo", "false", "true", "sleep", "head", "tail", "tr", "wc", "printf", "ls", "id", "touch", "dd",
	"httpd", "nc", "wget", "grep", "seq", "test", "yes", "sort", "sed", "awk", "mkdir", "rm", "ps", "kill", "date", "od"}
