package node

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// containerdConfig keeps containerd from lowering a container's OOM score below its own. Some
// machines do not let root lower it; no pod could start there.
const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[5]q
    conf_dir = %[6]q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %[7]q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %[8]q
        SystemdCgroup = false
`

// bridgeConfig puts all pods on one bridge, from which the node reaches them.
const bridgeConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "%s/0"}], "dataDir": %q}},
  {"type": "loopback"}]}
`

// registryConfig directs pulls to the registry, without TLS.
const registryConfig = `server = "http://%[1]s"
[host."http://%[1]s"]
  capabilities = ["pull", "resolve"]
`

// kubeletConfig evicts late and keeps all images: the machine shares its disk with other
// work.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[1]q}}
authorization: {mode: Webhook}
tlsCertFile: %[2]q
tlsPrivateKeyFile: %[3]q
containerRuntimeEndpoint: "unix://%[4]s"
cgroupDriver: cgroupfs
cgroupRoot: "/%[5]s"
failSwapOn: false
failCgroupV1: false
resolvConf: ""
address: %[9]q
clusterDomain: cluster.local
volumePluginDir: %[6]q
podLogsDir: %[7]q
makeIPTablesUtilChains: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 0.1%%, imagefs.inodesFree: 0.1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
syncFrequency: 10s
nodeStatusUpdateFrequency: 2s
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
serializeImagePulls: false
maxPods: 110
%[8]s
`

// configure writes the configuration of all parts.
func (n *Node) configure() error {
	o := n.options
	for _, dir := range []string{o.Dir, n.file("cni"), n.file("containerd"), n.file("volume-plugins")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := layerable(n.file("containerd")); err != nil {
		return err
	}
	root := filepath.Join(o.Binaries, "node")
	for file, text := range map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, n.file("containerd"), n.file("containerd-state"), n.socket(), o.Pause,
			filepath.Join(root, "usr/lib/cni"), n.file("cni"), n.file("registries"), filepath.Join(root, "usr/sbin/runc")),
		"cni/10-pods.conflist": fmt.Sprintf(bridgeConfig, o.Addresses.Pods, o.Addresses.All, n.file("addresses")),
		"kubelet.yaml": fmt.Sprintf(kubeletConfig, o.Authority, o.Certificate, o.Key, n.socket(), Cgroup(),
			n.file("volume-plugins"), n.file("pod-logs"), o.KubeletConfig, o.Addresses.All),
		filepath.Join("registries", o.Registry, "hosts.toml"): fmt.Sprintf(registryConfig, o.Registry),
		// Images without a host, and those of the stock gateway, come from this registry too.
		filepath.Join("registries", "docker.io", "hosts.toml"): fmt.Sprintf(registryConfig, o.Registry),
		filepath.Join("registries", "ghcr.io", "hosts.toml"):   fmt.Sprintf(registryConfig, o.Registry),
	} {
		if err := os.MkdirAll(filepath.Dir(n.file(file)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.file(file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// layerable makes sure that dir can hold an overlay. It cannot if its file system is an
// overlay, as in the containers of CI systems. Then layerable mounts a tmpfs on dir.
func layerable(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("read the file system type of %s: %w", dir, err)
	}
	if s.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return nil
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=711"); err != nil {
		return fmt.Errorf("mount memory for images: %w", err)
	}
	return nil
}
