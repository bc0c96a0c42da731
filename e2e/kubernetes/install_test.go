package kubernetes_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/guide"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// patches make the provider small enough to run two replicas on the tests' node.
const patches = `patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: faas-infer, namespace: openfaas}
      spec:
        template:
          spec:
            containers:
              - name: provider
                resources: {requests: {cpu: 100m, memory: 128Mi, ephemeral-storage: 128Mi}}
images:
`

// ofFaasNetes is a function that faas-netes has left: a Deployment, whose selector cannot
// be changed, and a Service.
const ofFaasNetes = `apiVersion: apps/v1
kind: Deployment
metadata: {name: figlet, namespace: openfaas-fn, labels: {faas_function: figlet}}
spec:
  replicas: 0
  selector: {matchLabels: {faas_function: figlet}}
  template:
    metadata: {labels: {faas_function: figlet}}
    spec: {containers: [{name: figlet, image: ghcr.io/openfaas/figlet:latest}]}
---
apiVersion: v1
kind: Service
metadata: {name: figlet, namespace: openfaas-fn, labels: {faas_function: figlet}}
spec: {selector: {faas_function: figlet}, ports: [{port: 8080}]}
`

// readPage reads a page of the guide.
func readPage(t *testing.T, name string) []guide.Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	page, err := guide.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// The steps of docs/kubernetes.md and the pages in docs/kubernetes work. yaml/ installs two replicas of the provider and
// NATS in pods, and later the stock gateway in front. They find each other by their services' names, with only
// their own rights and within Pod Security's "restricted". Both replicas serve functions
// that faas-cli and kubectl deploy, asynchronously too. Nobody reaches what network
// policies forbid, and everything can be removed.
func TestInstalled(t *testing.T) {
	f := start(t, testcluster.Options{})
	f.stockImages(t)
	f.volume(t)
	f.image(t, "push", filepath.Join(f.programs, "base.tar"), f.base+"-shell")
	f.image(t, "provider", "--base", filepath.Join(f.programs, "base.tar"), "--push", f.RegistryHost()+"/faas-infer/provider:latest")
	// The page begins with a cluster in which there is nothing.
	f.kubectl(t, "", "delete", "crd/functions.faas-infer.dev")
	f.kubectl(t, "", "delete", "-f", "../../yaml/options/namespaces/namespaces.yaml")
	page := readPage(t, "kubernetes.md")
	last := len(page) - 1
	if !strings.HasPrefix(page[last].Text, "kubectl delete functions") {
		t.Fatalf("the page ends with %s", page[last].Text)
	}
	r := f.reader(t)
	steps := page[:last]
	for _, name := range []string{"functions", "models", "nodes", "security", "operating"} {
		steps = slices.Concat(steps, readPage(t, "kubernetes/"+name+".md"))
	}
	if err := r.Follow(t.Context(), steps); err != nil {
		// The shortest and most telling comes first: who runs this may cut the output.
		t.Fatalf("the providers' logs end with\n%s\ndocs/kubernetes.md, %v\n%s\n%s", f.lastLogs(t, "app.kubernetes.io/component=provider", 10), err,
			f.lastLogs(t, "app.kubernetes.io/part-of=faas-infer", 40), f.kubectl(t, "", "-n", "openfaas", "describe", "pods"))
	}
	f.bothServe(t)
	f.speaksGRPC(t, "service/faas-infer-api")
	began := time.Now()
	f.answersLater(t, "service/faas-infer-api")
	t.Logf("an asynchronous answer after %v", time.Since(began).Round(time.Millisecond))
	f.visitors(t)
	f.reach(t, stranger, api+"/healthz")
	f.reach(t, neighbour, api+"/healthz")
	if err := r.Follow(t.Context(), readPage(t, "kubernetes/gateway.md")); err != nil {
		t.Fatalf("docs/kubernetes/gateway.md, %v\n%s", err, f.lastLogs(t, "app.kubernetes.io/part-of=faas-infer", 40))
	}
	f.answersLater(t, "service/gateway")
	began = time.Now()
	f.keepsOut(t)
	t.Logf("network policies looked at in %v", time.Since(began).Round(time.Millisecond))
	f.kubectl(t, ofFaasNetes, "apply", "-f", "-")
	if err := r.Follow(t.Context(), readPage(t, "from-faas-netes.md")); err != nil {
		t.Errorf("docs/from-faas-netes.md, %v", err)
	}
	if err := r.Follow(t.Context(), page[last:]); err != nil {
		t.Errorf("docs/kubernetes.md, %v", err)
	}
}

// passing matches errors that a provider may log while NATS, the API server and others
// still start on a slow machine.
var passing = regexp.MustCompile(`until it (does|works)|tried again|deadline exceeded|[Tt]imed? ?out|connection refused|object has been modified`)

// bothServe sends requests for the page's functions to each replica.
func (f *fixture) bothServe(t *testing.T) {
	t.Helper()
	for _, replica := range f.replicas(t) {
		await(t, "the model's answer at "+replica, func() error {
			got, err := get(t.Context(), http.MethodPost, replica+"/function/mnist", blackPicture)
			if err == nil && !strings.Contains(got, "predictions") {
				err = errors.New(got)
			}
			return err
		})
	}
	for line := range strings.Lines(f.logs(t, "app.kubernetes.io/component=provider")) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, `"level":"error"`) && !passing.MatchString(line) {
			t.Errorf("a provider says %s", line)
		}
	}
}

// replicas waits until there are two replicas of the provider, and returns their URLs.
func (f *fixture) replicas(t *testing.T) (urls []string) {
	t.Helper()
	await(t, "two replicas", func() error {
		urls = nil
		text, err := f.Kubectl(t.Context(), "", "-n", "openfaas", "get", "pods", "-l", "app.kubernetes.io/component=provider",
			"-o", "jsonpath={.items[*].status.podIP}")
		for _, address := range strings.Fields(text) {
			urls = append(urls, "http://"+address+":8081")
		}
		if err == nil && len(urls) != 2 {
			err = fmt.Errorf("they are at %v", urls)
		}
		return err
	})
	return urls
}

// blackPicture is a request to mnist with a black image.
var blackPicture = fmt.Sprintf(`{"instances": [[[%s]]]}`, strings.TrimSuffix(strings.Repeat("["+strings.TrimSuffix(strings.Repeat("0,", 28), ",")+"],", 28), ","))

// reader returns a reader who is an administrator of the cluster, with a checkout of this
// source, built programs, and an empty home.
func (f *fixture) reader(t *testing.T) *guide.Reader {
	t.Helper()
	desk := t.TempDir()
	checkout := filepath.Join(desk, "faas-infer")
	root, err := filepath.Abs("../..")
	if err == nil {
		err = os.MkdirAll(filepath.Join(checkout, "bin"), 0o755)
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(root)
	}
	for _, e := range entries {
		if e.Name() != "bin" && err == nil {
			err = os.Symlink(filepath.Join(root, e.Name()), filepath.Join(checkout, e.Name()))
		}
	}
	for _, name := range []string{"faas-infer", "faas-infer-kubernetes"} {
		if err == nil {
			err = os.Symlink(f.program(name), filepath.Join(checkout, "bin", name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{filepath.Join(f.Binaries(), "bin"), filepath.Dir(os.Getenv(faasCLIVariable)), os.Getenv("PATH")}, ":")
	return &guide.Reader{
		Dir: checkout, Patience: 2 * moment, Log: t.Output(),
		Env: append(guide.Environment(os.Environ()), "HOME="+desk, "PATH="+path, "KUBECONFIG="+f.Kubeconfig(), "SSL_CERT_FILE="+f.Authority()),
		Replace: []string{
			"registry.my-company.com", f.RegistryHost(), "images:\n", patches,
		},
	}
}

// logs returns the logs of the pods with a label.
func (f *fixture) logs(t *testing.T, label string) string {
	t.Helper()
	return f.lastLogs(t, label, -1)
}

// lastLogs returns the last lines of each pod with a label, -1 for all. A container that
// has exited and waits to be started again shows its last run.
func (f *fixture) lastLogs(t *testing.T, label string, lines int) string {
	t.Helper()
	out, err := f.Kubectl(t.Context(), "", "-n", "openfaas", "logs", "-l", label, "--tail="+strconv.Itoa(lines), "--prefix")
	if err != nil {
		return err.Error()
	}
	return out
}
