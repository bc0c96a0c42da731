package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// moment is how long one step may take on a busy machine.
const moment = 2 * time.Minute

// fixture is a cluster with a real node, faas-infer's resources and the image that
// functions are built on.
type fixture struct {
	*testcluster.Cluster
	// programs is the directory of what was built, base the image's name.
	programs, base string
	// providerLog is the file of the provider that was started last, killProvider kills it.
	providerLog  string
	killProvider func()
}

// common is the cluster that tests share one after another, nil before the first of them and after one
// that fails.
var common *testcluster.Cluster

// stopCommon stops the cluster that tests share.
func stopCommon() error {
	if common == nil {
		return nil
	}
	c := common
	common = nil
	return c.Stop()
}

// shared returns the cluster that tests share. It holds nothing of earlier tests but the option copies, once
// a test has installed it, rights, and the images on the node.
func shared(t *testing.T) *fixture {
	t.Helper()
	if common == nil {
		common = launch(t, testcluster.Options{})
	}
	c := common
	t.Cleanup(func() {
		if (&fixture{Cluster: c}).clear(t); !t.Failed() {
			return
		}
		keepLogs(t, c)
		if err := stopCommon(); err != nil { // Nobody knows what is left in it.
			t.Error(err)
		}
	})
	return prepared(t, c)
}

// start starts a cluster for one test that needs all of it. A machine has room for one real node.
func start(t *testing.T, o testcluster.Options) *fixture {
	t.Helper()
	if err := stopCommon(); err != nil {
		t.Fatal(err)
	}
	c := launch(t, o)
	t.Cleanup(func() {
		keepLogs(t, c)
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return prepared(t, c)
}

// launch starts a cluster with a real node. If that is impossible, it skips the test with a visible line.
func launch(t *testing.T, o testcluster.Options) *testcluster.Cluster {
	t.Helper()
	err := testcluster.NodePossible(t.Context())
	if err == nil && o.IPv6 {
		err = node.IPv6Possible()
	}
	if err != nil {
		t.Skipf("*** NO REAL NODE: %v ***", err)
	}
	began := time.Now()
	o.Node, o.Services, o.KubeletConfig, o.Log = true, true, soonAgain, os.Stderr
	c, err := testcluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the cluster is up after %v", time.Since(began).Round(time.Millisecond))
	return c
}

// prepared defines functions and their namespaces, and pushes the image that functions are built on.
func prepared(t *testing.T, c *testcluster.Cluster) *fixture {
	t.Helper()
	f := &fixture{Cluster: c, programs: os.Getenv(preparedVariable), base: c.RegistryHost() + "/faas-infer/base:latest"}
	// With Pod Security's profile "restricted", which nothing here may need to leave.
	f.kubectl(t, "", "apply", "-f", filepath.Join("..", "..", "yaml", "options", "namespaces", "namespaces.yaml"))
	if err := f.Define(t.Context(), filepath.Join("..", "..", "yaml", "crd.yaml")); err != nil {
		t.Fatal(err)
	}
	f.image(t, "push", filepath.Join(f.programs, "base.tar"), f.base)
	return f
}

// clear removes functions and what tests and providers have made in their namespaces. The lease of a killed
// provider goes, too: the next one would wait for its end.
func (f *fixture) clear(t *testing.T) {
	t.Helper()
	const made = "deployments,services,endpointslices,poddisruptionbudgets,secrets,configmaps,leases"
	for _, step := range []string{
		"delete functions.faas-infer.dev -A --all --wait=false",
		"delete " + made + " -n openfaas-fn --all",
		"delete " + made + " -n openfaas --all",
		"wait pods -n openfaas-fn --all --for=delete --timeout=2m",
		"wait pods -n openfaas --all --for=delete --timeout=2m",
	} {
		if _, err := f.Kubectl(context.Background(), "", strings.Fields(step)...); err != nil {
			t.Error(err)
		}
	}
}

// keepLogs copies the logs of a failed test's cluster if somebody wants them.
func keepLogs(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	keep := os.Getenv("FAAS_INFER_KEEP_LOGS")
	if keep == "" || !t.Failed() {
		return
	}
	if err := os.CopyFS(filepath.Join(keep, t.Name()+time.Now().Format("-150405")), os.DirFS(c.Logs())); err != nil {
		t.Error(err)
	}
}

func (f *fixture) program(name string) string { return filepath.Join(f.programs, name) }

// image runs "faas-infer-kubernetes image".
func (f *fixture) image(t *testing.T, arguments ...string) {
	t.Helper()
	if _, err := run(append([]string{f.program("faas-infer-kubernetes"), "image"}, arguments...)...); err != nil {
		t.Fatal(err)
	}
}

// pushAlpine pushes the image of the ordinary function that comes with faas-infer, and returns its name.
func (f *fixture) pushAlpine(t *testing.T) string {
	t.Helper()
	bundles, name := t.TempDir(), f.RegistryHost()+"/functions/alpine:latest"
	if err := bundle.WriteBuiltin(bundles); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", bundles+"/functions/alpine/latest", "--base", f.base, "--push", name)
	return name
}

// pushDigits pushes the image functions/digits of the model mnist.
func (f *fixture) pushDigits(t *testing.T) {
	t.Helper()
	model := filepath.Join(t.TempDir(), "digits.onnx")
	if _, err := run(f.program("faas-infer"), "model", "make", "mnist", "--out", model); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", model, "--base", f.base, "--push", f.RegistryHost()+"/functions/digits:latest")
}

// kubectl runs kubectl and fails the test if it fails.
func (f *fixture) kubectl(t *testing.T, stdin string, arguments ...string) string {
	t.Helper()
	out, err := f.Kubectl(t.Context(), stdin, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// provider runs a provider outside of pods until the test ends, and returns its URL.
func (f *fixture) provider(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	return f.providerAt(t, 8081, name, arguments...)
}

// providerAt is provider at another port of the node.
func (f *fixture) providerAt(t *testing.T, port int, name string, arguments ...string) string {
	t.Helper()
	state := t.TempDir()
	log, err := os.Create(filepath.Join(state, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f.providerLog = log.Name()
	listen := net.JoinHostPort(f.Addresses.Node, strconv.Itoa(port))
	all := append([]string{"provider", "--listen", listen, "--kubeconfig", f.Kubeconfig(), "--state", state, "--nats-listen", "off",
		"--pod", name, "--service", ""}, arguments...)
	c := exec.Command(f.program("faas-infer-kubernetes"), all...)
	c.Env = append(os.Environ(), "SSL_CERT_FILE="+f.Authority())
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	f.killProvider = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // Killed.
	})
	kill := f.killProvider
	t.Cleanup(func() {
		kill()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the provider's log ends with\n%s%v", text[max(0, len(text)-6000):], err)
		}
	})
	url := "http://" + listen
	await(t, "the provider", func() error {
		_, err := get(t.Context(), http.MethodGet, url+"/healthz", "")
		return err
	})
	return url
}

// get sends a request and returns the body. A status other than 200 is an error.
func get(ctx context.Context, method, url, body string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, response.StatusCode, text)
	}
	return string(text), err
}

// await polls until done returns nil, or fails the test.
func await(t *testing.T, what string, done func() error) {
	t.Helper()
	for end := time.Now().Add(moment); ; time.Sleep(50 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("waited in vain for %s: %v", what, err)
		}
	}
}
