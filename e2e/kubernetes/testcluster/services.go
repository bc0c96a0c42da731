package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// clusterDNS is the kubelet's setting for the DNS service of pods.
const clusterDNS = "\nclusterDNS: [%q]\n"

// proxyConfig does not change the machine's connection limits.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
mode: nftables
clusterCIDR: %q
hostnameOverride: %s
bindAddress: %q
healthzBindAddress: %s
metricsBindAddress: ""
conntrack: {maxPerCore: 0, min: 0}
nftables: {minSyncPeriod: 0s, syncPeriod: 30s}
`

// proxyHealth is the address at which kube-proxy reports that its rules are up to date.
const proxyHealth = "127.0.0.1:10256"

const corefile = `.:53 {
  bind %s
  errors
  kubernetes cluster.local {
    kubeconfig %q test
  }
}
`

// dnsService is the service of the DNS server, which runs on the node outside of pods.
const dnsService = `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: %q
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: %s
endpoints: [{addresses: [%q], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`

// startServices starts kube-proxy, CoreDNS and the enforcer of network policies.
func (c *Cluster) startServices(ctx context.Context) error {
	dir, err := script(ctx, "services.sh")
	if err != nil {
		return err
	}
	at := c.Addresses
	environment := append(os.Environ(), "PATH="+filepath.Join(dir, "usr/sbin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(dir, "usr/lib/x86_64-linux-gnu"))
	for _, p := range []struct{ program, file, flag, config string }{
		{c.program("kube-proxy"), "proxy.yaml", "--config", fmt.Sprintf(proxyConfig, c.file("proxy.kubeconfig"), at.Pods, NodeName, at.Node, proxyHealth)},
		{filepath.Join(dir, "coredns"), "Corefile", "-conf", fmt.Sprintf(corefile, at.Node, c.Kubeconfig())},
	} {
		if err := os.WriteFile(c.file(p.file), []byte(p.config), 0o644); err != nil {
			return err
		}
		started, err := node.StartProcess(filepath.Join(c.Logs(), filepath.Base(p.program)+".log"), environment, p.program, p.flag, c.file(p.file))
		if err != nil {
			return err
		}
		c.others = append(c.others, started)
	}
	if _, err := c.Kubectl(ctx, fmt.Sprintf(dnsService, at.DNS, at.Family, at.Node), "apply", "-f", "-"); err != nil {
		return err
	}
	if c.policies, err = StartEnforcer(c.Config(), filepath.Join(dir, "usr/sbin/nft"), environment); err != nil {
		return err
	}
	if err := c.await(ctx, "kube-proxy", func() error { return proxies(ctx) }); err != nil {
		return err
	}
	return c.await(ctx, "the name service", func() error { return resolves(ctx, at) })
}

// proxies returns nil when kube-proxy has written its rules.
func proxies(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxyHealth+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// resolves returns nil when the DNS server knows the API server's service.
func resolves(ctx context.Context, at node.Addresses) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(at.Node, "53"))
	}}
	found, err := r.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	if err == nil && (len(found) != 1 || found[0] != at.API) {
		err = fmt.Errorf("the API server's name resolves to %v, want %s", found, at.API)
	}
	return err
}

func (c *Cluster) stopServices() error {
	if c.policies == nil {
		return nil
	}
	err := c.policies.Stop()
	c.policies = nil
	return err
}
