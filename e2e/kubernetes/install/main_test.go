// Package install tests the manifests and the chart: both have the same objects, a real API
// server accepts all of them within the required Pod Security Standard, and the provider
// has the rights that it needs and no more. Begin with apply_test.go.
package install

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// root is the root of the repository.
const root = "../../.."

// patience is how long each step may take on a busy machine.
const patience = 3 * time.Minute

// cluster is the cluster of all tests.
var cluster *testcluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var err error
	if cluster, err = testcluster.Start(ctx, testcluster.Options{Kwok: true, APIServerArgs: []string{testcluster.DualStack}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return m.Run()
}

// options are all of yaml/options that can be combined.
var options = []string{"namespaces", "default-deny", "gateway", "nats", "prometheus", "grafana", "builder", "all-namespaces", "manage-namespaces", "gpu", "copies"}

// kustomized returns the output of `kubectl kustomize` for a copy of yaml/ with these
// options and files.
func kustomized(t *testing.T, options, files []string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "yaml")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "yaml"))); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "kustomization.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	edited := string(text)
	for _, file := range files {
		edited = strings.Replace(edited, "resources:\n", "resources:\n  - "+file+"\n", 1)
	}
	if len(options) > 0 {
		edited += "components:\n  - options/" + strings.Join(options, "\n  - options/") + "\n"
	}
	if err := os.WriteFile(name, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := cluster.Kubectl(t.Context(), "", "kustomize", dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rendered returns Helm's output for the chart with these values.
func rendered(t *testing.T, values ...string) string {
	t.Helper()
	out, err := helm(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func helm(t *testing.T, values ...string) (string, error) {
	t.Helper()
	return helmAs(t, "faas-infer", "openfaas", values...)
}

// helmAs returns Helm's output for the chart as a release with this name in this namespace.
func helmAs(t *testing.T, release, namespace string, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", release, filepath.Join(root, "yaml", "chart", "faas-infer"), "--namespace", namespace, "--kube-version", testcluster.Version}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	c := exec.CommandContext(t.Context(), program(t), args...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, complaint.String())
	}
	return string(out), err
}

// program returns the path of Helm.
func program(t *testing.T) string {
	t.Helper()
	script := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "helm.sh"))
	script.Stderr = os.Stderr
	name, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// read returns every object of a text by kind, namespace and name.
func read(t *testing.T, text string) map[string]metav1.Unstructured {
	t.Helper()
	all := map[string]metav1.Unstructured{}
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 1<<20)
	for {
		var object metav1.Unstructured
		if err := d.Decode(&object.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if _, twice := all[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		all[key] = object
	}
}
