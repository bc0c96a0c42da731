package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// steady is a model with two instances, and a budget that lets one of them go.
const steady = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: digits, namespace: openfaas-fn}
spec:
  image: %s/functions/digits:latest
  limits: {cpu: 400m}
  annotations: {com.openfaas.slo.latency: 1s}
  labels: {com.openfaas.scale.min: "2", com.openfaas.scale.max: "2"}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: digits, namespace: openfaas-fn}
spec: {maxUnavailable: 1, selector: {matchLabels: {faas_function: digits}}}
`

// patient is an ordinary function that executes its requests as scripts, with two instances like
// the model. Its requests may last longer than the 35 s that pods otherwise have to exit.
const patient = `---
apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: patient, namespace: openfaas-fn}
spec:
  image: %s/functions/alpine:latest
  process: sh
  environment: {exec_timeout: "60"}
  labels: {com.openfaas.scale.min: "2"}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: patient, namespace: openfaas-fn}
spec: {maxUnavailable: 1, selector: {matchLabels: {faas_function: patient}}}
`

// steadySLO is that model's objective, maxRate the highest rate in requests per second with
// which a test loads it.
const (
	steadySLO = time.Second
	maxRate   = 60
)

// clients send requests to a function and count what becomes of them.
type clients struct {
	url    string
	client *http.Client

	mu             sync.Mutex
	answered, late int
	lost           map[string]int
}

func newClients(url string) *clients {
	return &clients{url: url, lost: map[string]int{}, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
}

// send sends one request.
func (c *clients) send(ctx context.Context) {
	began := time.Now()
	err := c.post(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch took := time.Since(began); {
	case err != nil && len(c.lost) < 20:
		c.lost[err.Error()]++
	case err != nil:
		c.lost["others"]++
	case took > steadySLO:
		c.late++
	}
	c.answered++
}

func (c *clients) post(ctx context.Context) error {
	_, err := c.ask(ctx, "digits", blackPicture)
	return err
}

// ask sends a function one request and returns its answer.
func (c *clients) ask(ctx context.Context, function, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/function/"+function, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := c.client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", response.StatusCode, text)
	}
	return strings.TrimSpace(string(text)), err
}

// begin sends long requests of so many seconds each, and returns when all are being executed.
// finish waits for their answers, and fails the test if one is not as it should be.
func (c *clients) begin(t *testing.T, seconds int) (finish func()) {
	t.Helper()
	const several = 4
	answers := make(chan error, several)
	for range several {
		go func() {
			got, err := c.ask(t.Context(), "patient", fmt.Sprintf("sleep %d; echo slept", seconds))
			if err == nil && got != "slept" {
				err = fmt.Errorf("it answers %q", got)
			}
			answers <- err
		}()
	}
	sleep := fmt.Sprintf("sleep\x00%d\x00", seconds)
	await(t, "the long requests to be executed", func() error {
		asleep, lines := 0, []string{}
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if text, gone := os.ReadFile(file); gone == nil && strings.HasSuffix(string(text), sleep) {
				asleep, lines = asleep+1, append(lines, file)
			}
		}
		if err == nil && asleep != several {
			err = fmt.Errorf("they are %v", lines)
		}
		return err
	})
	return func() {
		t.Helper()
		for range several {
			if err := <-answers; err != nil {
				t.Errorf("a request of %d s is lost: %v", seconds, err)
			}
		}
	}
}

// capacity returns how many requests per second a few clients get answered one after another.
func (c *clients) capacity(ctx context.Context) float64 {
	const several, while = 8, 3 * time.Second
	began := time.Now()
	var all sync.WaitGroup
	for range several {
		all.Go(func() {
			for time.Since(began) < while {
				c.send(ctx)
			}
		})
	}
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	rate := float64(c.answered) / time.Since(began).Seconds()
	c.answered, c.late = 0, 0
	return rate
}

// load sends requests at a rate while f runs.
func (c *clients) load(ctx context.Context, rate float64, f func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		ticks := time.Tick(time.Duration(float64(time.Second) / rate))
		for {
			select {
			case <-stop:
				return
			case <-ticks:
				all.Go(func() { c.send(ctx) })
			}
		}
	})
	defer all.Wait()
	defer close(stop)
	f()
}

// report prints what has become of the requests since the last report, and fails the test if one
// is lost. How many are late depends on what else the machine does.
func (c *clients) report(t *testing.T, what string, began time.Time, rate float64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("%s in %v at %.0f requests/s: of %d requests %d are late (%.2f %%), lost are %v", what, time.Since(began).Round(time.Millisecond),
		rate, c.answered, c.late, 100*float64(c.late)/float64(max(1, c.answered)), c.lost)
	if len(c.lost) > 0 || c.answered < 30 {
		t.Errorf("%s: of %d requests are lost: %v", what, c.answered, c.lost)
	}
	c.answered, c.late = 0, 0
	clear(c.lost)
}

// installed installs two replicas of the provider from yaml/, small enough for the node, and
// returns the URL of its service. If the test fails, it shows what the cluster runs.
func (f *fixture) installed(t *testing.T) string {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, ask := range []string{"get pods,poddisruptionbudgets,functions -A -o wide", "-n openfaas logs --prefix --tail=20 -l " + ofProvider} {
			out, err := f.Kubectl(context.Background(), "", strings.Fields(ask)...)
			t.Logf("%s%v", out, err)
		}
	})
	image := f.RegistryHost() + "/faas-infer/provider:latest"
	f.image(t, "provider", "--base", filepath.Join(f.programs, "base.tar"), "--push", image)
	text, err := os.ReadFile("../../yaml/provider.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := fmt.Sprintf("serviceAccountName: faas-infer\n      hostAliases: [{ip: %q, hostnames: [%s]}]\n", node.IPv6.Node, node.IPv6.Registry)
	manifest := strings.NewReplacer("serviceAccountName: faas-infer\n", names, "image: faas-infer/provider\n", "image: "+image+"\n", "requests: {cpu: 500m, memory: 512Mi, ephemeral-storage: 1Gi}", "requests: {cpu: 100m, memory: 128Mi}").Replace(string(text))
	f.kubectl(t, "", "apply", "-f", "../../yaml/rbac.yaml")
	f.kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth", "--from-literal=basic-auth-user=admin", "--from-literal=basic-auth-password=secret")
	f.kubectl(t, manifest, "apply", "-f", "-")
	f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
	// The tests run on the node, which has no route to the services' own addresses.
	f.kubectl(t, "", "-n", "openfaas", "patch", "service/faas-infer", "--patch", `{"spec":{"type":"NodePort"}}`)
	port := f.kubectl(t, "", "-n", "openfaas", "get", "service/faas-infer", "-o", "jsonpath={.spec.ports[0].nodePort}")
	return "http://" + net.JoinHostPort(f.Addresses.Node, port)
}

// The selectors of the functions' pods and of the provider's.
const (
	ofDigits   = "faas_function=digits"
	ofPatient  = "faas_function=patient"
	ofProvider = "app.kubernetes.io/component=provider"
)

// deploysSteady deploys the model and the ordinary function, and waits for two instances of each.
func (f *fixture) deploysSteady(t *testing.T, c *clients) {
	t.Helper()
	f.pushAlpine(t)
	f.pushDigits(t)
	host := f.RegistryHost()
	f.kubectl(t, fmt.Sprintf(steady, host)+fmt.Sprintf(patient, host), "apply", "-f", "-")
	for _, selector := range []string{ofDigits, ofPatient} {
		f.twoReady(t, "openfaas-fn", selector)
	}
	await(t, "the first answers", func() error {
		_, err := c.ask(t.Context(), "patient", "echo")
		return errors.Join(err, c.post(t.Context()))
	})
}

// readyPods lists pods that are ready and not about to go.
func (f *fixture) readyPods(t *testing.T, namespace, selector string) (names []string) {
	t.Helper()
	for line := range strings.Lines(f.kubectl(t, "", "get", "pods", "-n", namespace, "-l", selector, "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}{"\n"}{end}`)) {
		if w := strings.Fields(line); len(w) == 2 && w[1] == "True" {
			names = append(names, w[0])
		}
	}
	return names
}

// Nothing is lost while the provider's Deployment rolls out again at half load, nor while kubectl
// drains the only node: PodDisruptionBudgets keep the last instance of each function and the last
// replica of the provider until a node can take others. Requests that last longer than that are
// answered, too.
func TestRolloutAndDrain(t *testing.T) {
	f := shared(t)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, ask := range []string{"get pods,poddisruptionbudgets,functions -A -o wide", "-n openfaas logs --prefix --tail=20 -l " + ofProvider} {
			out, err := f.Kubectl(context.Background(), "", strings.Fields(ask)...)
			t.Logf("%s%v", out, err)
		}
	})
	c := newClients(f.installed(t))
	f.deploysSteady(t, c)
	rate := min(maxRate, c.capacity(t.Context())/2)
	f.rollsOut(t, c, rate)
	f.drains(t, c, rate)
}

// twoReady waits until two pods are ready that are none of those named.
func (f *fixture) twoReady(t *testing.T, namespace, selector string, without ...string) {
	t.Helper()
	await(t, "two pods", func() error {
		got := f.readyPods(t, namespace, selector)
		if slices.ContainsFunc(got, func(name string) bool { return slices.Contains(without, name) }) || len(got) < 2 {
			return fmt.Errorf("ready are %v", got)
		}
		return nil
	})
}

// rollsOut restarts the provider's replicas one after the other.
func (f *fixture) rollsOut(t *testing.T, c *clients, rate float64) {
	t.Helper()
	began, finish := time.Now(), c.begin(t, 11)
	c.load(t.Context(), rate, func() {
		f.kubectl(t, "", "-n", "openfaas", "rollout", "restart", "deployment/faas-infer")
		f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
		await(t, "the earlier replicas to go", func() error {
			pods := strings.Fields(f.kubectl(t, "", "-n", "openfaas", "get", "pods", "-l", ofProvider, "-o", "name"))
			if len(pods) != 2 {
				return fmt.Errorf("there are %v", pods)
			}
			return nil
		})
	})
	finish()
	c.report(t, "rolled out", began, rate)
}

// kind selects pods that do the same. before are those of it that were ready when the drain began.
type kind struct {
	namespace, selector string
	before              []string
}

// left lists the pods of before that are still ready.
func (k kind) left(t *testing.T, f *fixture) []string {
	ready := f.readyPods(t, k.namespace, k.selector)
	return slices.DeleteFunc(slices.Clone(k.before), func(name string) bool { return !slices.Contains(ready, name) })
}

// drains drains the node. One pod of each kind goes at once. The budgets keep the others until the
// node takes new ones again, as another node would.
func (f *fixture) drains(t *testing.T, c *clients, rate float64) {
	t.Helper()
	kinds := []kind{{namespace: "openfaas-fn", selector: ofDigits}, {namespace: "openfaas-fn", selector: ofPatient}, {namespace: "openfaas", selector: ofProvider}}
	for i, k := range kinds {
		kinds[i].before = f.readyPods(t, k.namespace, k.selector)
	}
	await(t, "the budgets to let one of each go", func() error {
		allowed := f.kubectl(t, "", "get", "poddisruptionbudgets", "-A", "-o", "jsonpath={.items[*].status.disruptionsAllowed}")
		if allowed != "1 1 1" {
			return fmt.Errorf("%s; the model should have %s pods, its budget is %s", allowed,
				f.kubectl(t, "", "-n", "openfaas-fn", "get", "function/digits", "-o", "jsonpath={.spec.instances}"),
				f.kubectl(t, "", "-n", "openfaas-fn", "get", "poddisruptionbudget/digits", "-o", "jsonpath={.status}"))
		}
		return nil
	})
	began, finish := time.Now(), c.begin(t, 45)
	c.load(t.Context(), rate, func() {
		drained := make(chan error, 1)
		go func() {
			_, err := f.Kubectl(t.Context(), "", "drain", testcluster.NodeName, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=2m")
			drained <- err
		}()
		await(t, "the eviction of one of each", func() error {
			select {
			case err := <-drained:
				t.Fatalf("the budgets have let all go: %v", err)
			default:
			}
			for _, k := range kinds {
				if left := k.left(t, f); len(left) == len(k.before) {
					return fmt.Errorf("ready are %v", left)
				}
			}
			return nil
		})
		// kubectl tries the others again after 5 s.
		select {
		case err := <-drained:
			t.Errorf("the budgets have let all go: %v", err)
		case <-time.After(6 * time.Second):
		}
		for _, k := range kinds {
			if left := k.left(t, f); len(left) == 0 {
				t.Errorf("none of %v is ready while the node takes none", k.before)
			}
		}
		f.kubectl(t, "", "uncordon", testcluster.NodeName)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		for _, k := range kinds {
			f.twoReady(t, k.namespace, k.selector, k.before...)
		}
	})
	finish()
	c.report(t, "drained", began, rate)
}
