// Package node runs a real node for a test's cluster: containerd with runc and CNI's
// bridge, and a kubelet. It runs in the namespaces that [Run] makes. The control plane is
// in package testcluster. Begin with Run and Start.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// patience is how long containerd may take to listen, on a busy machine.
const patience = 3 * time.Minute

// Options are the options of a node.
type Options struct {
	// Addresses are the cluster's.
	Addresses Addresses
	// Dir is the node's directory, which must not exist. Logs is the directory of its
	// logs.
	Dir, Logs string
	// Binaries is the directory made by scripts/kubernetes.sh.
	Binaries string
	// Name is the node's name. Kubeconfig is the file with which its kubelet connects to
	// the API server.
	Name, Kubeconfig string
	// Authority is the file of the cluster's authority. Certificate and Key are the files
	// of the kubelet's server certificate.
	Authority, Certificate, Key string
	// Pause is the image of a pod's first container, Registry the host of its registry.
	Pause, Registry string
	// KubeletConfig are additional lines of the kubelet's configuration.
	KubeletConfig string
}

// Node is a running node.
type Node struct {
	options             Options
	containerd, kubelet *Process
}

// Possible returns nil if a real node can run, otherwise an error that says what is
// missing.
func Possible(binaries string) error {
	if !Isolated() {
		return errors.New("a real node needs its own namespaces: call node.Run in the test's TestMain, as root")
	}
	for _, program := range []string{"usr/bin/containerd", "usr/sbin/runc", "usr/lib/cni/bridge"} {
		if _, err := os.Stat(filepath.Join(binaries, "node", program)); err != nil {
			return fmt.Errorf("a real node needs Debian's packages: run scripts/kubernetes.sh where apt-get works: %w", err)
		}
	}
	if err := MakeCgroups(Cgroup()); err != nil {
		return fmt.Errorf("a real node needs control groups: %w", err)
	}
	return nil
}

// Start starts containerd and the kubelet. The node registers itself; the caller
// waits until it is ready.
func Start(ctx context.Context, o Options) (*Node, error) {
	n := &Node{options: o}
	if err := Possible(o.Binaries); err != nil {
		return nil, err
	}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if err := n.configure(); err != nil {
		return err
	}
	var err error
	root := filepath.Join(n.options.Binaries, "node")
	environment := append(os.Environ(),
		"PATH="+filepath.Join(root, "usr/bin")+":"+filepath.Join(root, "usr/sbin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/x86_64-linux-gnu"))
	n.containerd, err = StartProcess(filepath.Join(n.options.Logs, "containerd.log"), environment,
		filepath.Join(root, "usr/bin/containerd"), "--config", n.file("containerd.toml"))
	if err != nil {
		return err
	}
	if err := n.awaitContainerd(ctx); err != nil {
		return err
	}
	n.kubelet, err = StartProcess(filepath.Join(n.options.Logs, "kubelet.log"), environment,
		filepath.Join(n.options.Binaries, "bin/kubelet"), "--config", n.file("kubelet.yaml"), "--kubeconfig", n.options.Kubeconfig,
		"--root-dir", n.file("kubelet"), "--cert-dir", n.file("kubelet-pki"),
		"--hostname-override", n.options.Name, "--node-ip", n.options.Addresses.Node)
	return err
}

// Alive returns nil while the node's programs run.
func (n *Node) Alive() error {
	for _, p := range []*Process{n.containerd, n.kubelet} {
		if err := p.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// awaitContainerd waits until containerd accepts connections.
func (n *Node) awaitContainerd(ctx context.Context) error {
	tick := time.Tick(20 * time.Millisecond)
	for end := time.Now().Add(patience); ; {
		connection, err := net.Dial("unix", n.socket())
		if err == nil {
			return connection.Close()
		}
		if ended := n.containerd.Alive(); ended != nil {
			return ended
		}
		if time.Now().After(end) {
			return fmt.Errorf("containerd does not listen: %w: %s", err, n.containerd.Tail(6))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

func (n *Node) file(name string) string { return filepath.Join(n.options.Dir, name) }

// socket returns containerd's socket. Its path is short enough under /run.
func (n *Node) socket() string { return "/run/containerd-" + n.options.Name + ".sock" }

// Stop kills the node's programs and all containers, and removes their mounts, cgroups and
// files.
func (n *Node) Stop() error {
	var errs []error
	for _, p := range []*Process{n.kubelet, n.containerd} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	errs = append(errs, killShims(n.socket()), KillCgroups(Cgroup()), unmountBelow(n.options.Dir), unmountBelow("/run/netns"),
		RemoveCgroups(Cgroup()), os.RemoveAll(n.options.Dir))
	return errors.Join(errs...)
}
