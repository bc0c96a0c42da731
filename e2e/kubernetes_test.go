package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// clusterVariable has the description of the Kubernetes cluster for the tests, as JSON.
// Without it they run on this machine. Package e2e/kubernetes sets it.
const clusterVariable = "FAAS_INFER_E2E_KUBERNETES"

// kubernetes is a cluster with one node that runs beside the tests. Tests can see and kill
// the processes of its containers like those of this machine.
type kubernetes struct {
	// Kubectl is the program, Kubeconfig how to be the administrator.
	Kubectl, Kubeconfig string
	// Registry is where images without a host come from, Base the image that
	// functions are built on, Authority the certificate of all servers.
	Registry, Base, Authority string
	// Program is faas-infer, Provider faas-infer-kubernetes.
	Program, Provider string
}

// onCluster is the cluster, nil for tests on this machine.
var onCluster *kubernetes

// findCluster reads the cluster's description from the environment.
func findCluster() error {
	text := os.Getenv(clusterVariable)
	if text == "" {
		return nil
	}
	onCluster = &kubernetes{}
	if err := json.Unmarshal([]byte(text), onCluster); err != nil {
		return fmt.Errorf("%s: %w", clusterVariable, err)
	}
	return nil
}

func (k *kubernetes) kubectl(arguments ...string) (string, error) {
	c := exec.Command(k.Kubectl, append([]string{"--kubeconfig", k.Kubeconfig, "--cache-dir", filepath.Join(suite.dir, "kubectl")}, arguments...)...)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, complaint.String())
	}
	return string(out), nil
}

// push makes an image of a bundle's directory and pushes it under its name.
func (k *kubernetes) push(dir, image string) error {
	name := strings.TrimPrefix(image, "docker.io/")
	if !strings.Contains(name, "/") {
		name = "library/" + name
	}
	text, err := exec.Command(k.Provider, "image", "function", dir, "--base", k.Base, "--push", k.Registry+"/"+name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("image %s: %w: %s", image, err, text)
	}
	return nil
}

// pushBuiltin pushes the images that are built into a provider on one machine, and those of
// testdata/stack.yml.
func (k *kubernetes) pushBuiltin() error {
	bundles := filepath.Join(suite.dir, "bundles")
	if err := bundle.WriteBuiltin(bundles); err != nil {
		return err
	}
	images := []string{"functions/alpine", "theaxer/redirector", "identity", "mnist"}
	for _, name := range images[2:] {
		m, err := zoo.Make(name, 1)
		if err != nil {
			return err
		}
		if _, err := bundle.Write(bundles, name+":latest", bundle.Manifest{}, m); err != nil {
			return err
		}
	}
	for _, image := range images {
		if err := k.push(filepath.Join(bundles, image, "latest"), image+":latest"); err != nil {
			return err
		}
	}
	return nil
}

// pods returns the UIDs of the functions' pods and their functions' names.
func (k *kubernetes) pods() (map[string]string, error) {
	out, err := k.kubectl("get", "pods", "-A", "-l", "faas_function", "-o", `jsonpath={range .items[*]}{.metadata.uid} {.metadata.labels.faas_function}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		uid, function, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[uid] = function
	}
	return all, nil
}

// left names what the cluster still has of a function that was deleted, "" on one machine. All network
// policies count: none is made for a function.
func (k *kubernetes) left(t *testing.T, function string) string {
	t.Helper()
	if k == nil {
		return ""
	}
	own, err := k.kubectl("get", "pods,services,deployments,configmaps", "-A", "-l", "faas_function="+function, "-o", "name")
	policies, failed := k.kubectl("get", "networkpolicies", "-n", defaultNamespace, "-o", "name")
	if err := errors.Join(err, failed); err != nil {
		return err.Error()
	}
	return own + policies
}

// instances lists the serving processes of functions' pods, of one function or of all for
// "". It returns none if they cannot be listed.
func (k *kubernetes) instances(function string) []int {
	pods, err := k.pods()
	if err != nil {
		return nil
	}
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		arguments, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if !isInstance(splitArguments(arguments)) {
			continue
		}
		groups := readAll(filepath.Join("/proc", e.Name(), "cgroup"))
		for uid, of := range pods {
			if (function == "" || of == function) && strings.Contains(groups, "pod"+uid) {
				pids = append(pids, pid)
				break
			}
		}
	}
	slices.Sort(pids)
	return pids
}

// providerArguments returns the provider's flags on a cluster for a test's flags on this
// machine.
func (k *kubernetes) providerArguments(p *place, arguments []string) []string {
	return append(arguments, "--state", p.state, "--prepared", suite.prepared, "--kubeconfig", k.Kubeconfig,
		"--pod", filepath.Base(p.dir), "--service", "")
}

// clear removes all functions, and the namespaces and secrets of a test.
func (k *kubernetes) clear(t *testing.T) {
	t.Helper()
	if t.Failed() {
		for _, what := range [][]string{{"get", "functions,pods,deployments,nodes", "-A", "-o", "wide"}, {"get", "events", "-A", "--sort-by=.lastTimestamp"}} {
			out, err := k.kubectl(what...)
			t.Logf("%s\n%s%v", strings.Join(what, " "), out[max(0, len(out)-8000):], err)
		}
	}
	steps := [][]string{
		{"delete", "functions.faas-infer.dev", "-A", "--all", "--wait=false"},
		{"delete", "secrets", "-n", defaultNamespace, "--all", "--wait=false"},
		{"delete", "configmaps", "-n", "openfaas", "--all", "--wait=false"},
		{"wait", "pods", "-A", "-l", "faas_function", "--for=delete", "--timeout=120s"},
	}
	out, err := k.kubectl("get", "namespaces", "-o", `jsonpath={range .items[?(@.metadata.annotations.openfaas=="1")]}{.metadata.name}{"\n"}{end}`)
	if err != nil {
		t.Error(err)
	}
	for name := range strings.Lines(out) {
		if name = strings.TrimSpace(name); name != defaultNamespace {
			// One that a test has deleted may go meanwhile.
			steps = append(steps, []string{"delete", "namespace", name, "--wait=false", "--ignore-not-found"})
		}
	}
	for _, step := range steps {
		if _, err := k.kubectl(step...); err != nil {
			t.Error(err)
		}
	}
}

// up starts the stack on a cluster: the provider as a process outside of pods, the stock
// gateway in front of it if the provider is behind one, and testdata/stack.yml.
func (k *kubernetes) up(t *testing.T, p *place, behind bool, arguments ...string) *stack {
	t.Helper()
	secrets := filepath.Join(p.dir, "credentials")
	const password = "of the tests"
	write(t, "admin", 0o600, secrets, "basic-auth-user")
	write(t, password, 0o600, secrets, "basic-auth-password")
	nats := freeAddress(t)
	d := p.provider(t, k.Provider, append([]string{"--nats-listen", nats, "--secret-mount-path", secrets}, arguments...)...)
	s := &stack{daemon: d, door: d.url, http: client(t), password: password}
	if behind {
		p.gatewayWith(t, strings.TrimPrefix(d.url, "http://"), nats, "basic_auth=true", "secret_mount_path="+secrets)
		s.door = gatewayURL
	}
	s.connect(t)
	for _, f := range fromStack(t, filepath.Join("testdata", "stack.yml")) {
		deploy(t, s.faas, f)
	}
	return s
}

// environment returns the provider's additional environment on a cluster.
func (k *kubernetes) environment() []string { return []string{"SSL_CERT_FILE=" + k.Authority} }
