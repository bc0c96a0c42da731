package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/instance/engine"
)

const (
	// NodeName is the name of the real node.
	NodeName = "node1"
	// patience is how long a part of the cluster may take to start. On a machine that
	// many tests share it takes seconds, seldom more than ten.
	patience = 3 * time.Minute
)

// users are the users that connect to the API server with a certificate.
var users = []struct {
	name, user string
	groups     []string
}{
	{"admin", "admin", []string{"system:masters"}},
	{"controller-manager", "system:kube-controller-manager", nil},
	{"scheduler", "system:kube-scheduler", nil},
	{"proxy", "system:kube-proxy", nil},
	{"kubelet", "system:node:" + NodeName, []string{"system:nodes"}},
	{"kubelet-client", "apiserver-kubelet-client", []string{"system:masters"}},
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	for _, d := range []string{"pki", "log"} {
		if err := os.Mkdir(c.file(d), 0o755); err != nil {
			return err
		}
	}
	if err := c.choosePorts(); err != nil {
		return err
	}
	if err := errors.Join(c.makeCertificates(), c.makeFrontProxy()); err != nil {
		return err
	}
	client := fmt.Sprintf("http://127.0.0.1:%d", c.etcd)
	// The state need not survive the machine, so etcd does not wait for the disk.
	if err := c.run("etcd", "--data-dir", c.file("etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", c.peer), "--log-level", "warn", "--unsafe-no-fsync",
		"--quota-backend-bytes", "4294967296"); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.startControllers(); err != nil {
		return err
	}
	return c.awaitServiceAccount(ctx)
}

func (c *Cluster) startControllers() error {
	manager := []string{"--kubeconfig", c.file("controller-manager.kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials", "--service-account-private-key-file", c.ca.File("service-account.key"),
		"--root-ca-file", c.ca.File("ca.crt"), "--kube-api-qps=1000", "--kube-api-burst=2000"}
	if !c.options.watchesNodes() {
		manager = append(manager, "--controllers=*,-node-lifecycle-controller")
	}
	if err := c.run("kube-controller-manager", append(manager, c.options.ControllerManagerArgs...)...); err != nil {
		return err
	}
	scheduler := []string{"--kubeconfig", c.file("scheduler.kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=2000"}
	return c.run("kube-scheduler", append(scheduler, c.options.SchedulerArgs...)...)
}

func (o Options) watchesNodes() bool { return o.Node || o.NodeLifecycle }

// choosePorts chooses free ports below those that the kernel gives to clients.
func (c *Cluster) choosePorts() error {
	for _, port := range []*int{&c.etcd, &c.peer, &c.server} {
		var err error
		if *port, err = engine.FreePort(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) makeCertificates() (err error) {
	if c.ca, err = NewAuthority(c.file("pki")); err != nil {
		return err
	}
	hosts := []string{"127.0.0.1", c.Addresses.API, c.Addresses.Node, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", NodeName}
	if err := c.ca.Issue("apiserver", "kube-apiserver", nil, hosts); err != nil {
		return err
	}
	if err := c.ca.KeyPair("service-account"); err != nil {
		return err
	}
	for _, u := range users {
		var hosts []string
		if u.name == "kubelet" {
			hosts = []string{NodeName, c.Addresses.Node, "127.0.0.1"}
		}
		if err := c.ca.Issue(u.name, u.user, u.groups, hosts); err != nil {
			return err
		}
		if err := c.writeKubeconfig(u.name); err != nil {
			return err
		}
	}
	c.config, err = loadConfig(c.Kubeconfig())
	return err
}

// Server returns the API server's address, such as "127.0.0.1:16443".
func (c *Cluster) Server() string {
	host := "127.0.0.1"
	if c.options.IPv6 {
		host = c.Addresses.Node
	}
	return net.JoinHostPort(host, strconv.Itoa(c.server))
}

func (c *Cluster) writeKubeconfig(name string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: user, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
`, c.Server(), c.ca.File("ca.crt"), c.ca.File(name+".crt"), c.ca.File(name+".key"))
	return os.WriteFile(c.file(name+".kubeconfig"), []byte(text), 0o600)
}

// StartAPIServer starts the API server and waits until it is ready. Its address is the same
// each time.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiserver != nil {
		return errors.New("the API server is already running")
	}
	bind, advertise := "127.0.0.1", "127.0.0.1"
	switch {
	case c.options.IPv6:
		bind, advertise = c.Addresses.Node, c.Addresses.Node
	case c.options.Node:
		bind, advertise = "0.0.0.0", c.Addresses.Node
	}
	arguments := []string{fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcd),
		"--bind-address=" + bind, "--advertise-address=" + advertise, fmt.Sprintf("--secure-port=%d", c.server),
		"--service-cluster-ip-range=" + c.Addresses.Services, "--allow-privileged", "--authorization-mode=Node,RBAC",
		"--client-ca-file=" + c.ca.File("ca.crt"), "--tls-cert-file=" + c.ca.File("apiserver.crt"), "--tls-private-key-file=" + c.ca.File("apiserver.key"),
		"--kubelet-client-certificate=" + c.ca.File("kubelet-client.crt"), "--kubelet-client-key=" + c.ca.File("kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.ca.File("ca.crt"), "--kubelet-preferred-address-types=InternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.ca.File("service-account.pub"),
		"--service-account-signing-key-file=" + c.ca.File("service-account.key")}
	arguments = append(arguments, aggregation(c.file("front-proxy"))...)
	if !c.options.watchesNodes() {
		// New nodes would get a taint that nothing removes.
		arguments = append(arguments, "--disable-admission-plugins=TaintNodesByCondition")
	}
	began := time.Now()
	p, err := c.launch("kube-apiserver", append(arguments, c.options.APIServerArgs...)...)
	if err != nil {
		return err
	}
	c.apiserver = p
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	err = c.await(ctx, "the API server", func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(2 * time.Second).Do(ctx).Error()
	})
	if err == nil {
		c.say("API server ready at %s after %v, logs in %s", c.Server(), time.Since(began).Round(time.Millisecond), c.Logs())
	}
	return err
}

// StopAPIServer kills the API server. The other programs keep running.
func (c *Cluster) StopAPIServer() error {
	if c.apiserver == nil {
		return nil
	}
	err := c.apiserver.Kill()
	c.apiserver = nil
	return err
}

// awaitServiceAccount waits until the controller manager runs and pods can be created.
func (c *Cluster) awaitServiceAccount(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	return c.await(ctx, "the controller manager", func() error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Namespaces creates namespaces and waits until pods can be created in them.
func (c *Cluster) Namespaces(ctx context.Context, annotations map[string]string, names ...string) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	for _, name := range names {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
		if err := c.await(ctx, "namespace "+name, func() error {
			_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// await polls until done returns nil. It returns an error if a program of the cluster ends,
// or after patience.
func (c *Cluster) await(ctx context.Context, what string, done func() error) error {
	tick := time.Tick(50 * time.Millisecond)
	for end := time.Now().Add(patience); ; {
		err := done()
		if err == nil {
			return nil
		}
		if ended := c.alive(); ended != nil {
			return fmt.Errorf("%s did not start: %w", what, ended)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not start within %v: %w; logs are in %s", what, patience, err, filepath.Join(c.dir, "log"))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick:
		}
	}
}
