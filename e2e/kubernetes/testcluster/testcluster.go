// Package testcluster starts a real Kubernetes for tests: etcd, API server, controller
// manager and scheduler. Options add simulated nodes with kwok, and a real node with
// kubelet, containerd and runc (package node). The state is in a temporary directory, all
// addresses are local, and all processes end with the test. Begin with Options and Start.
package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// Options select the parts of a cluster besides its control plane.
type Options struct {
	// Node starts a real node, [NodeName], and a registry for its images. It needs root
	// and its own network namespace, in which the test runs too: see [node.Run].
	// [NodePossible] reports whether the machine allows it.
	Node bool
	// Kwok lets [Cluster.AddNodes] create nodes that exist only at the API server and
	// report every pod as running.
	Kwok bool
	// Services lets pods of the real node reach services by address and by name, and
	// enforces network policies. It starts kube-proxy, CoreDNS and an [Enforcer], and
	// needs Node.
	Services bool
	// IPv6 gives the node, pods and services addresses of IPv6 only, and binds the API server
	// to the node's. It needs Node; [node.IPv6Possible] reports whether the machine allows it.
	IPv6 bool
	// NodeLifecycle makes kwok's nodes renew leases and the cluster watch them: a node
	// whose lease ends becomes not ready. Node includes it. Without it, an idle fleet
	// costs nothing.
	NodeLifecycle bool
	// Registry starts a registry of images, see [Cluster.RegistryHost].
	Registry bool
	// Log, if not nil, gets a message for each step.
	Log io.Writer
	// APIServerArgs, ControllerManagerArgs and SchedulerArgs are additional arguments.
	APIServerArgs, ControllerManagerArgs, SchedulerArgs []string
	// KubeletConfig are additional lines of the kubelet's configuration, in YAML.
	KubeletConfig string
}

// DualStack is an argument of the API server, for [Options], with which Services may have addresses
// of both families.
var DualStack = "--service-cluster-ip-range=" + node.IPv4.Services + "," + node.IPv6.Services

// Cluster is a running cluster.
type Cluster struct {
	// Addresses are those of the node, the pods and the services.
	Addresses node.Addresses
	options   Options
	// binaries is the directory of the programs, dir that of the state.
	binaries, dir string
	ca            *Authority
	// etcd, peer and server are ports: of etcd for clients and for peers, and of the API
	// server.
	etcd, peer, server int
	apiserver, metrics *node.Process
	others             []*node.Process
	config             *rest.Config
	node               *node.Node
	policies           *Enforcer
	registry           *Registry
}

// startAttempts is the maximum number of starts if a program of the cluster exits. Another
// process may have taken its port, or it has given up on a stalled machine.
const startAttempts = 3

// Start starts a cluster. It returns when the API server is ready and pods can be created
// in the namespace "default".
func Start(ctx context.Context, o Options) (*Cluster, error) {
	addresses := node.IPv4
	if o.IPv6 {
		addresses = node.IPv6
	}
	if o.IPv6 && (!o.Node || o.Kwok) {
		return nil, errors.New("Options.IPv6 needs Options.Node, and excludes Options.Kwok, whose nodes have addresses of IPv4")
	}
	binaries, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c := &Cluster{options: o, binaries: binaries, Addresses: addresses}
		err := c.start(ctx)
		if err == nil {
			return c, nil
		}
		ended := c.alive()
		err = errors.Join(err, c.Stop())
		if ended == nil || attempt == startAttempts {
			return nil, fmt.Errorf("start a Kubernetes cluster: %w", err)
		}
		c.say("the cluster is started again: %v", err)
	}
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "faas-infer-kubernetes-"); err != nil {
		return err
	}
	// Containers of the node run as other users and need access to files below this
	// directory.
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	if c.options.Kwok {
		if err := c.startKwok(); err != nil {
			return err
		}
	}
	return c.startRest(ctx)
}

// Stop stops all programs of the cluster and removes its state.
func (c *Cluster) Stop() error {
	errs := []error{c.stopServices()}
	if c.node != nil {
		errs = append(errs, c.node.Stop())
	}
	if c.registry != nil {
		errs = append(errs, c.registry.Stop())
	}
	for i := len(c.others) - 1; i >= 0; i-- {
		errs = append(errs, c.others[i].Kill())
	}
	c.others = nil
	errs = append(errs, c.StopMetricsServer(), c.StopAPIServer())
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// Config returns a copy of the administrator's client configuration.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.file("admin.kubeconfig") }

// Logs returns the directory of the programs' logs.
func (c *Cluster) Logs() string { return c.file("log") }

// Binaries returns the directory made by scripts/kubernetes.sh.
func (c *Cluster) Binaries() string { return c.binaries }

// Dir returns the directory of the cluster's state, which Stop removes.
func (c *Cluster) Dir() string { return c.dir }

// Kubectl runs kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, arguments ...string) (string, error) {
	all := append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", c.file("kubectl")}, arguments...)
	k := exec.CommandContext(ctx, c.program("kubectl"), all...)
	k.Stdin = strings.NewReader(stdin)
	var complaint strings.Builder
	k.Stderr = &complaint
	out, err := k.Output()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(complaint.String()))
	}
	return string(out), nil
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) program(name string) string { return filepath.Join(c.binaries, "bin", name) }

func (c *Cluster) say(format string, arguments ...any) {
	if c.options.Log != nil {
		fmt.Fprintf(c.options.Log, format+"\n", arguments...)
	}
}

// launch starts one of the cluster's programs.
func (c *Cluster) launch(name string, arguments ...string) (*node.Process, error) {
	return node.StartProcess(filepath.Join(c.Logs(), name+".log"), nil, c.program(name), arguments...)
}

// run is launch for what lives as long as the cluster.
func (c *Cluster) run(name string, arguments ...string) error {
	p, err := c.launch(name, arguments...)
	if err == nil {
		c.others = append(c.others, p)
	}
	return err
}

// alive returns the error of the first program that has ended, nil if all run.
func (c *Cluster) alive() error {
	for _, p := range append([]*node.Process{c.apiserver, c.metrics}, c.others...) {
		if p == nil {
			continue
		}
		if err := p.Alive(); err != nil {
			return err
		}
	}
	if c.node != nil {
		return c.node.Alive()
	}
	return nil
}

func loadConfig(file string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	config.QPS = -1
	return config, nil
}
