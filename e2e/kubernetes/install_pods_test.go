package kubernetes_test

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// stockImages puts the images that yaml/options names into the cluster's registry, which
// the node uses for all registries. They are the stock gateway, like its own image, and the
// NATS server in this module's version. The gateway's image also has kubectl, with which
// tests send requests from its pod.
func (f *fixture) stockImages(t *testing.T) {
	t.Helper()
	const home = "/home/app"
	program := os.Getenv(gatewayVariable)
	files := map[string]string{home + "/gateway": program, "/bin/kubectl": filepath.Join(f.Binaries(), "bin/kubectl")}
	source := filepath.Dir(program)
	err := fs.WalkDir(os.DirFS(source), "assets", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[path.Join(home, name)] = filepath.Join(source, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.PushTools("openfaas/gateway:0.27.14", files, v1.Config{WorkingDir: home, Entrypoint: []string{"./gateway"}, User: "100"}); err != nil {
		t.Fatal(err)
	}
	_, err = f.PushTools("library/nats:2.12", map[string]string{"/nats-server": f.program("nats-server")}, v1.Config{Entrypoint: []string{"/nats-server"}})
	if err != nil {
		t.Fatal(err)
	}
}

// volume creates a volume that a pod on the node can claim. The cluster has no provisioner.
// It has a file system of 10 GiB, as a provisioner would make it: NATS sizes itself by that.
func (f *fixture) volume(t *testing.T) {
	t.Helper()
	const manifest = `apiVersion: v1
kind: PersistentVolume
metadata: {name: queue}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  local: {path: %q}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}
`
	dir := filepath.Join(f.Dir(), "queue")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=10g,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // It holds nothing that is needed.
	f.kubectl(t, fmt.Sprintf(manifest, dir, testcluster.NodeName), "apply", "-f", "-")
}

// speaksGRPC asks for a model and a program over gRPC through a service, which the model answers as ready.
func (f *fixture) speaksGRPC(t *testing.T, service string) {
	t.Helper()
	door := f.forward(t, service)
	await(t, "answers over gRPC at "+service, func() error {
		url, err := door()
		if err != nil {
			return err
		}
		conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		for name, want := range map[string]bool{"mnist": true, "words": false} {
			// ModelReadyRequest and ModelReadyResponse have the fields of these messages.
			var ready wrapperspb.BoolValue
			if err := conn.Invoke(t.Context(), "/inference.GRPCInferenceService/ModelReady", wrapperspb.String(name), &ready); err != nil {
				return err
			}
			if ready.Value != want {
				return fmt.Errorf("%s: ready is %v", name, ready.Value)
			}
		}
		return nil
	})
}

// answersLater requests an answer of the page's function words by a callback, through a
// service: the provider's, or that of the gateway, which hands the request to the provider over NATS.
func (f *fixture) answersLater(t *testing.T, service string) {
	t.Helper()
	answers := make(chan string, 1)
	l, err := net.Listen("tcp", node.NodeAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	callback := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		select {
		case answers <- fmt.Sprintf("%s %s %v", r.Header.Get("X-Function-Status"), strings.TrimSpace(string(text)), err):
		default: // Twice, which may be.
		}
	})}
	served := make(chan error, 1)
	go func() { served <- callback.Serve(l) }()
	defer func() {
		_ = callback.Close() // It only frees the address.
		<-served
	}()
	door := f.forward(t, service)
	await(t, service+" to take a request", func() error {
		url, err := door()
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/async-function/words", strings.NewReader("later is not never"))
		if err != nil {
			return err
		}
		r.Header.Set("X-Callback-Url", "http://"+l.Addr().String()+"/")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusAccepted {
			return fmt.Errorf("it answers %s", response.Status)
		}
		return nil
	})
	var got string
	await(t, "the asynchronous answer", func() error {
		select {
		case got = <-answers:
			return nil
		default:
			return fmt.Errorf("there is none: %s", f.logs(t, "app.kubernetes.io/part-of=faas-infer"))
		}
	})
	if got != "200 4 <nil>" {
		t.Errorf("the asynchronous answer is %q", got)
	}
}

// forward forwards a service's first port to this machine until the test ends. The returned
// function returns the URL. It restarts kubectl, which exits once its pod accepts no
// connections.
func (f *fixture) forward(t *testing.T, service string) func() (string, error) {
	t.Helper()
	var p *node.Process
	t.Cleanup(func() {
		if p == nil {
			return
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return func() (string, error) {
		if p == nil || p.Alive() != nil {
			var err error
			p, err = node.StartProcess(filepath.Join(t.TempDir(), "log"), nil, filepath.Join(f.Binaries(), "bin/kubectl"), "--kubeconfig", f.Kubeconfig(), "-n", "openfaas", "port-forward", service, ":8080")
			if err != nil {
				return "", err
			}
		}
		text, err := os.ReadFile(p.Log)
		if err != nil {
			return "", err
		}
		_, after, _ := strings.Cut(string(text), "Forwarding from ")
		address, _, found := strings.Cut(after, " ->")
		if !found {
			return "", fmt.Errorf("kubectl says %q", text)
		}
		return "http://" + address, nil
	}
}
