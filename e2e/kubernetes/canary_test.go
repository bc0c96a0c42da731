package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// canaryRate is the load in requests/s while revisions roll out. canarySLO is loose: the machine is busy.
const (
	canaryRate = 40
	canarySLO  = 5 * time.Second
)

// pushWeights pushes the model mnist with weights of a seed, and returns the image's name.
func (f *fixture) pushWeights(t *testing.T, seed int, tag string) string {
	t.Helper()
	model, name := filepath.Join(t.TempDir(), "digits.onnx"), f.RegistryHost()+"/functions/digits:"+tag
	if _, err := run(f.program("faas-infer"), "model", "make", "mnist", "--seed", strconv.Itoa(seed), "--out", model); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", model, "--base", f.base, "--push", name)
	return name
}

// canaries deploys revisions of the function digits.
type canaries struct {
	*fixture
	// url is the provider's, and password the file with its password.
	url, password string
}

// installedCanaries installs two replicas of the provider, and logs faas-cli in.
func installedCanaries(t *testing.T, f *fixture) canaries {
	t.Helper()
	c := canaries{f, f.installed(t), filepath.Join(t.TempDir(), "password")}
	t.Setenv("OPENFAAS_CONFIG", t.TempDir())
	if err := os.WriteFile(c.password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := []string{os.Getenv(faasCLIVariable), "login", "--gateway", c.url, "--username", "admin", "--password", "secret"}
	await(t, "faas-cli to log in", func() error { // The node's port is opened a little later.
		_, err := run(login...)
		return err
	})
	return c
}

// applied is the function as kubectl applies it, with an image and further annotations. They differ from those of
// faas-cli: kubectl would share the ownership of equal ones.
const applied = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: digits, namespace: openfaas-fn}
spec:
  image: %s
  limits: {cpu: 300m}
  annotations:
    com.openfaas.slo.latency: 5s
    com.openfaas.infer.canary: "30,60"
    com.openfaas.infer.canary-margin: "12"
    com.openfaas.infer.canary-timeout: 1m%s
`

// deploy deploys an image with faas-cli, gradually.
func (c canaries) deploy(t *testing.T, image string, more ...string) {
	t.Helper()
	command := []string{os.Getenv(faasCLIVariable), "deploy", "--gateway", c.url, "--name", "digits", "--image", image, "--cpu-limit", "300m"}
	for _, a := range append([]string{"slo.latency=" + canarySLO.String(), "infer.canary=30,60", "infer.canary-margin=10", "infer.canary-timeout=1m"}, more...) {
		command = append(command, "--annotation", "com.openfaas."+a)
	}
	if _, err := run(command...); err != nil {
		t.Fatal(err)
	}
}

// rollout runs a command of faas-infer rollout about the function.
func (c canaries) rollout(t *testing.T, arguments ...string) string {
	t.Helper()
	arguments = append(arguments, "--url", c.url, "--password-file", c.password)
	text, err := run(append([]string{c.program("faas-infer"), "rollout"}, arguments...)...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// condition returns a condition of the function's object: its status, reason and message.
func (c canaries) condition(t *testing.T, kind string) string {
	t.Helper()
	path := fmt.Sprintf(`{range .status.conditions[?(@.type==%q)]}{.status} {.reason}: {.message}{end}`, kind)
	return c.kubectl(t, "", "get", "function/digits", "-n", "openfaas-fn", "-o", "jsonpath="+path)
}

// awaits waits until a condition begins with a text and has another one.
func (c canaries) awaits(t *testing.T, kind, begin, has string) {
	t.Helper()
	await(t, fmt.Sprintf("condition %s to be %q", kind, begin), func() error {
		if got := c.condition(t, kind); !strings.HasPrefix(got, begin) || !strings.Contains(got, has) {
			return fmt.Errorf("it is %q; %s", got, c.rollout(t, "status", "digits"))
		}
		return nil
	})
}

// killing kills the processes of a function's pods as soon as it sees them, until ctx ends.
func killing(ctx context.Context, function string) {
	for ctx.Err() == nil {
		for _, pid := range testcluster.Processes(function) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // It may have ended.
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A later revision that faas-cli deploys takes over gradually from pods to pods under load. One that crashes and one
// that answers otherwise are rolled back with the reason. So it is with revisions that kubectl applies. Two replicas of
// the provider share the requests. None is lost, and the object's conditions tell each step. The history of revisions
// is still there after a restart of the provider.
func TestCanary(t *testing.T) {
	f := shared(t)
	first, again, other := f.pushWeights(t, 1, "first"), f.pushWeights(t, 1, "again"), f.pushWeights(t, 2, "other")
	c := installedCanaries(t, f)
	c.deploy(t, first)
	load := newClients(c.url)
	await(t, "the first answer", func() error { return load.post(t.Context()) })
	c.awaits(t, "Ready", "True", "")
	c.awaits(t, "Progressing", "False NoRollout", "")

	began := time.Now()
	load.load(t.Context(), canaryRate, func() {
		c.deploy(t, again)
		c.awaits(t, "Progressing", "True RollingOut", "sharing and gets 30 %")
		c.awaits(t, "Progressing", "False NoRollout", "")
	})
	load.report(t, "promoted", began, canaryRate)
	c.awaits(t, "Degraded", "False", "")
	if got := c.rollout(t, "status", "digits"); !strings.Contains(got, "took over") || !strings.Contains(got, again) {
		t.Errorf("the rollout's status is\n%s", got)
	}

	began = time.Now()
	load.load(t.Context(), canaryRate, func() {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			killing(ctx, "digits--next")
		}()
		c.deploy(t, first)
		c.awaits(t, "Degraded", "True RolledBack", "instance")
		stop()
		<-ended
	})
	load.report(t, "crashed", began, canaryRate)

	began = time.Now()
	load.load(t.Context(), canaryRate, func() {
		c.deploy(t, other, "infer.canary-mirror=50")
		c.awaits(t, "Degraded", "True RolledBack", "differ from those of the present revision")
	})
	load.report(t, "answered otherwise", began, canaryRate)
	c.awaits(t, "Ready", "True", "")
	await(t, "the candidate's pods to go", func() error {
		if left := f.kubectl(t, "", "get", "pods,functions", "-n", "openfaas-fn", "-l", "faas_function=digits--next", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})

	before := c.rollout(t, "history", "digits")
	if !strings.Contains(before, "promoted:") {
		t.Errorf("the history is\n%s", before)
	}
	f.kubectl(t, "", "-n", "openfaas", "rollout", "restart", "deployment/faas-infer")
	f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
	if after := c.rollout(t, "history", "digits"); after != before {
		t.Errorf("the history is\n%s after a restart of the provider, and was\n%s", after, before)
	}
	if got := c.rollout(t, "undo", "digits"); !strings.Contains(got, first) {
		t.Errorf("after undo the status is\n%s", got)
	}
	c.kubectlToo(t, load, again, other)
}

// kubectlToo rolls out what kubectl applies: an image with the same answers is promoted, one with others is not.
func (c canaries) kubectlToo(t *testing.T, load *clients, again, other string) {
	t.Helper()
	began := time.Now()
	load.load(t.Context(), canaryRate, func() {
		c.kubectl(t, fmt.Sprintf(applied, again, ""), "apply", "--server-side", "--force-conflicts", "-f", "-")
		c.awaits(t, "Progressing", "True RollingOut", "sharing")
		// A number of instances is no revision: it holds at once, for the present one.
		c.kubectl(t, "", "-n", "openfaas-fn", "scale", "function", "digits", "--replicas", "2")
		await(t, "a second instance of the present revision", func() error {
			pods := strings.Fields(c.kubectl(t, "", "-n", "openfaas-fn", "get", "pods", "-l", "faas_function=digits", "-o", "name"))
			if len(pods) < 2 {
				return fmt.Errorf("there are %v; %s", pods, c.rollout(t, "status", "digits"))
			}
			return nil
		})
		c.awaits(t, "Progressing", "False NoRollout", "")
		c.awaits(t, "Accepted", "True Deployed", "")
	})
	load.report(t, "applied", began, canaryRate)
	c.awaits(t, "Degraded", "False", "")

	began = time.Now()
	load.load(t.Context(), canaryRate, func() {
		manifest := fmt.Sprintf(applied, other, "\n    com.openfaas.infer.canary-mirror: \"50\"")
		c.kubectl(t, manifest, "apply", "--server-side", "-f", "-") // The spec is still kubectl's.
		c.awaits(t, "Degraded", "True RolledBack", "differ from those of the present revision")
		c.awaits(t, "Accepted", "False RolledBack", "change the function to try again")
	})
	load.report(t, "applied with other answers", began, canaryRate)
	if got := c.rollout(t, "status", "digits"); !strings.Contains(got, again) || !strings.Contains(got, "was rolled back") {
		t.Errorf("the rollout's status is\n%s", got)
	}
}
