// Package testcluster starts a real Kubernetes for tests: etcd, API server,
// controller manager and scheduler, kwok's nodes if asked for, and a real node with
// kubelet, containerd and runc. Everything is in a temporary directory, on loopback
// and dies with the test.
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

// Options are what a cluster has beyond its control plane.
type Options struct {
	// Node is a real node, [NodeName], and a registry that it takes images from. It
	// needs root and a network namespace of its own, in which the test runs, too: see
	// package isolation, and [NodePossible] for whether the machine has that.
	Node bool
	// Kwok lets [Cluster.AddNodes] make nodes that exist only at the API server and
	// say of every pod that it runs.
	Kwok bool
	// Services lets pods of the real node reach services, by addresses and by names, and
	// keeps them from what network policies forbid: kube-proxy, CoreDNS and package
	// policies. It takes Node.
	Services bool
	// NodeLifecycle makes kwok's nodes renew leases and the cluster watch them: a
	// node whose lease ends becomes not ready. It is on with Node. Without it a large
	// fleet costs nothing while nothing happens.
	NodeLifecycle bool
	// Registry is a registry of images, see [Cluster.RegistryHost].
	Registry bool
	// Log is told of each step; nil for nobody.
	Log io.Writer
	// APIServerArgs, ControllerManagerArgs and SchedulerArgs come after our own.
	APIServerArgs, ControllerManagerArgs, SchedulerArgs []string
	// KubeletConfig are lines of YAML for the kubelet's configuration.
	KubeletConfig string
}

// Cluster is one that runs.
type Cluster struct {
	options Options
	// binaries is where the programs are, dir where the state is.
	binaries, dir string
	ca            *Authority
	// etcd and server are ports of the addresses that all is reached at.
	etcd, peer, server int
	apiserver, metrics *node.Process
	others             []*node.Process
	config             *rest.Config
	node               *node.Node
	policies           *Enforcer
	registry           *Registry
}

// startAttempts is how often a cluster is started of which a program ends: somebody else
// took its port, or it gave up what a machine that stands still did not do in time.
const startAttempts = 3

// Start starts a cluster and returns when its API server is ready and pods can be
// made in the namespace "default".
func Start(ctx context.Context, o Options) (*Cluster, error) {
	binaries, err := Binaries(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c := &Cluster{options: o, binaries: binaries}
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
	// The node's containers run as other users, some below this directory.
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

// Stop ends all that Start started and removes its state.
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

// Config is how the cluster's administrator connects; it is the caller's own copy.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the file with which the administrator connects.
func (c *Cluster) Kubeconfig() string { return c.file("admin.kubeconfig") }

// Logs is the directory of the programs' logs.
func (c *Cluster) Logs() string { return c.file("log") }

// Binaries is the directory that scripts/kubernetes.sh made.
func (c *Cluster) Binaries() string { return c.binaries }

// Dir is the directory of the cluster's state, which Stop removes.
func (c *Cluster) Dir() string { return c.dir }

// Kubectl runs kubectl as the administrator and returns what it printed.
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

// alive is the error of the first program that has ended.
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
