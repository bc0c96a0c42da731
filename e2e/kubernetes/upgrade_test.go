package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// earlierChart is the chart of version 0.1.0.
const earlierChart = "testdata/faas-infer-0.1.0.tgz"

// The user of a release goes from chart 0.1 and an earlier provider to the present ones with Helm, back again, and
// forth and back with kubectl alone. Under load no request is lost, every asynchronous request that was accepted is
// answered, and functions stay.
func TestUpgrade(t *testing.T) {
	f := start(t, testcluster.Options{})
	f.kubectl(t, "", "delete", "crd/functions.faas-infer.dev") // The chart has it.
	repository := f.RegistryHost() + "/faas-infer/provider"
	f.pushProviders(t, repository)
	f.volume(t)
	nats := map[string]string{"/nats-server": f.program("nats-server")}
	if _, err := f.PushTools("library/nats:2.12", nats,
		v1.Config{Entrypoint: []string{"/nats-server"}}); err != nil {
		t.Fatal(err)
	}
	f.kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth",
		"--from-literal=basic-auth-user=admin", "--from-literal=basic-auth-password=secret")
	f.helm(t, "install", "faas-infer", earlierChart, "--set",
		"image.repository="+repository+",image.tag=earlier,nats.enabled=true,"+
			"resources.requests.cpu=100m,resources.requests.memory=128Mi,resources.requests.ephemeral-storage=128Mi")
	// The tests run on the node, which has no route to the services' own addresses. Helm leaves the type as it is.
	f.kubectl(t, "", "-n", "openfaas", "patch", "service/faas-infer", "--patch", `{"spec":{"type":"NodePort"}}`)
	port := f.kubectl(t, "", "-n", "openfaas", "get", "service/faas-infer", "-o",
		"jsonpath={.spec.ports[0].nodePort}")
	c := newClients("http://" + net.JoinHostPort(f.Addresses.Node, port))
	f.deploysSteady(t, c)
	later := startLater(t, c)
	rate := min(maxRate, c.capacity(t.Context())/2)

	f.replaces(t, c, rate, "upgraded", repository+":now", func() {
		f.helm(t, "upgrade", "faas-infer", "../../yaml/chart/faas-infer", "--reset-then-reuse-values", "--set",
			"image.tag=now")
	})
	f.replaces(t, c, rate, "rolled back", repository+":earlier", func() {
		f.helm(t, "rollback", "faas-infer",
			"1")
	})
	f.replaces(t, c, rate, "image set", repository+":now", func() {
		f.kubectl(t, "", "-n", "openfaas", "set", "image", "deployment/faas-infer", "provider="+repository+":now")
		f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
	})
	f.replaces(t, c, rate, "undone", repository+":earlier", func() {
		f.kubectl(t, "", "-n", "openfaas", "rollout", "undo", "deployment/faas-infer")
		f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
	})
	later.end(t)
	if got := f.kubectl(t, "", "-n", "openfaas-fn", "get", "functions", "-o", "name"); strings.Count(got,
		"\n") != 1 {
		t.Errorf("the functions are %s", got)
	}
}

// pushProviders pushes two images of the provider: "now", and "earlier", whose program names another commit.
func (f *fixture) pushProviders(t *testing.T, repository string) {
	t.Helper()
	base := filepath.Join(f.programs, "base.tar")
	f.image(t, "provider", "--base", base, "--push", repository+":now")
	f.image(t, "provider", "--base", base, "--provider-program", f.program("faas-infer-kubernetes-earlier"),
		"--push", repository+":earlier")
}

// helm runs Helm in the release's namespace and waits until the objects are ready.
func (f *fixture) helm(t *testing.T, arguments ...string) {
	t.Helper()
	program, err := run("../../scripts/helm.sh")
	if err != nil {
		t.Fatal(err)
	}
	all := append(arguments, "--namespace", "openfaas", "--kubeconfig", f.Kubeconfig(), "--wait", "--timeout",
		moment.String())
	command := exec.CommandContext(t.Context(), strings.TrimSpace(program), all...)
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		command.Env = append(command.Environ(), name+"="+f.Dir())
	}
	out, err := command.CombinedOutput()
	if err == nil {
		return
	}
	// What Helm says is not enough.
	pods, _ := f.Kubectl(context.Background(), "", "-n", "openfaas", "describe", "pods")
	t.Fatalf("helm %v: %v: %s\n%s\n%s", arguments, err, out, pods, f.lastLogs(t, ofProvider, 20))
}

// replaces calls do under load, which replaces both replicas by those of an image, and waits until the others have
// gone.
func (f *fixture) replaces(t *testing.T, c *clients, rate float64, what, image string, do func()) {
	t.Helper()
	began := time.Now()
	c.load(t.Context(), rate, func() {
		do()
		await(t, "replicas of "+image+" alone", func() error {
			got := f.kubectl(t, "", "-n", "openfaas", "get", "pods", "-l", ofProvider, "-o",
				"jsonpath={.items[*].spec.containers[0].image}")
			if got != image+" "+image {
				return fmt.Errorf("there are %s", got)
			}
			return nil
		})
	})
	c.report(t, what, began, rate)
}

// later sends asynchronous requests one after the other, and counts their answers.
type later struct {
	server   *http.Server
	stop     func()
	mu       sync.Mutex
	accepted []string
	refused  int
	answers  map[string]string
}

// startLater starts it. Requests are sent until end.
func startLater(t *testing.T, c *clients) *later {
	t.Helper()
	l := &later{answers: map[string]string{}}
	listener, err := net.Listen("tcp", node.NodeAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	l.server = &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answers[r.URL.Path] = r.Header.Get("X-Function-Status")
	})}
	served := make(chan error, 1)
	go func() { served <- l.server.Serve(listener) }()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			path := fmt.Sprintf("/%d", n)
			err := c.askLater(t.Context(), "http://"+listener.Addr().String()+path)
			l.mu.Lock()
			if err == nil {
				l.accepted = append(l.accepted, path)
			} else {
				l.refused++ // NATS itself is replaced. The client knows.
			}
			l.mu.Unlock()
		}
	}()
	l.stop = sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
	t.Cleanup(func() {
		l.stop()
		_ = l.server.Close() // It only frees the address.
		<-served
	})
	return l
}

// askLater sends an asynchronous request whose answer goes to a URL.
func (c *clients) askLater(ctx context.Context, callback string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/async-function/patient",
		strings.NewReader("echo later"))
	if err != nil {
		return err
	}
	r.Header.Set("X-Callback-Url", callback)
	response, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		return errors.New(response.Status)
	}
	return nil
}

// end stops sending and fails the test unless every accepted request is answered.
func (l *later) end(t *testing.T) {
	t.Helper()
	l.stop()
	await(t, "the asynchronous answers", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		var missing []string
		for _, path := range l.accepted {
			if l.answers[path] != "200" {
				missing = append(missing, path+" "+l.answers[path])
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("of %d there are none for %v", len(l.accepted), missing)
		}
		return nil
	})
	t.Logf("%d asynchronous requests were accepted and answered, %d were refused", len(l.accepted), l.refused)
	if len(l.accepted) < 20 {
		t.Errorf("only %d asynchronous requests were accepted", len(l.accepted))
	}
}
