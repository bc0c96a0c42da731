package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// steady is a model with two instances of half a core, and a budget that lets one of them go.
const steady = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: digits, namespace: openfaas-fn}
spec:
  image: %s/functions/digits:latest
  limits: {cpu: 400m}
  annotations: {com.openfaas.slo.latency: 1s}
  labels: {com.openfaas.scale.min: "2"}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: digits, namespace: openfaas-fn}
spec: {maxUnavailable: 1, selector: {matchLabels: {faas_function: digits}}}
`

// steadySLO is that model's objective, maxRate the highest rate in requests per second with
// which a test loads it, maxLate the part of requests that may be answered later.
const (
	steadySLO = time.Second
	maxRate   = 60
	maxLate   = 0.01
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
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(blackPicture))
	if err != nil {
		return err
	}
	response, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", response.StatusCode, text)
	}
	return err
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
		ticks := time.NewTicker(time.Duration(float64(time.Second) / rate))
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				all.Go(func() { c.send(ctx) })
			}
		}
	})
	f()
	close(stop)
	all.Wait()
}

// take returns the counts since the last call.
func (c *clients) take() (answered, late int, lost map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered, late, lost = c.answered, c.late, maps.Clone(c.lost)
	c.answered, c.late = 0, 0
	clear(c.lost)
	return answered, late, lost
}

// installed installs two replicas of the provider from yaml/, small enough for the node, and
// returns the URL of its service.
func (f *fixture) installed(t *testing.T) string {
	t.Helper()
	image := f.RegistryHost() + "/faas-infer/provider:latest"
	f.image(t, "provider", "--base", filepath.Join(f.programs, "base.tar"), "--push", image)
	text, err := os.ReadFile("../../yaml/provider.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.NewReplacer("image: faas-infer/provider\n", "image: "+image+"\n", "requests: {cpu: 500m, memory: 512Mi, ephemeral-storage: 1Gi}", "requests: {cpu: 100m, memory: 128Mi}").Replace(string(text))
	f.kubectl(t, "", "apply", "-f", "../../yaml/rbac.yaml")
	f.kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth", "--from-literal=basic-auth-user=admin", "--from-literal=basic-auth-password=secret")
	f.kubectl(t, manifest, "apply", "-f", "-")
	f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
	// The tests run on the node, which has no route to the services' own addresses.
	f.kubectl(t, "", "-n", "openfaas", "patch", "service/faas-infer", "--patch", `{"spec":{"type":"NodePort"}}`)
	return "http://" + node.NodeAddress + ":" + f.kubectl(t, "", "-n", "openfaas", "get", "service/faas-infer", "-o", "jsonpath={.spec.ports[0].nodePort}")
}

// readyPods lists the pods of a function that are ready and not about to go.
func (f *fixture) readyPods(t *testing.T, function string) (names []string) {
	t.Helper()
	for line := range strings.Lines(f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function="+function, "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}{"\n"}{end}`)) {
		if w := strings.Fields(line); len(w) == 2 && w[1] == "True" {
			names = append(names, w[0])
		}
	}
	return names
}

// Nothing is lost while the provider's Deployment rolls out anew at half load, and at most one
// request in a hundred is late. Nothing is lost either while kubectl drains the only node under
// load: the model's PodDisruptionBudget keeps its last instance until a node can take another one.
func TestRolloutAndDrain(t *testing.T) {
	f := start(t, testcluster.Options{Services: true, KubeletConfig: soonAgain})
	model := filepath.Join(t.TempDir(), "digits.onnx")
	if _, err := run(f.program("faas-infer"), "model", "make", "mnist", "--out", model); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", model, "--base", f.base, "--push", f.RegistryHost()+"/functions/digits:latest")
	c := newClients(f.installed(t) + "/function/digits")
	f.kubectl(t, fmt.Sprintf(steady, f.RegistryHost()), "apply", "-f", "-")
	f.twoReady(t)
	await(t, "the first answer", func() error { return c.post(t.Context()) })
	rate := min(maxRate, c.capacity(t.Context())/2)
	f.rollsOut(t, c, rate)
	f.drains(t, c, rate)
}

// twoReady waits until the model has two ready instances, and its budget lets one go.
func (f *fixture) twoReady(t *testing.T, without ...string) {
	t.Helper()
	await(t, "two instances", func() error {
		got := f.readyPods(t, "digits")
		if slices.ContainsFunc(got, func(name string) bool { return slices.Contains(without, name) }) || len(got) < 2 {
			return fmt.Errorf("ready are %v", got)
		}
		return nil
	})
}

// rollsOut restarts the provider's replicas one after the other. A busy machine answers late,
// too, so it has several tries for that.
func (f *fixture) rollsOut(t *testing.T, c *clients, rate float64) {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		began := time.Now()
		c.load(t.Context(), rate, func() {
			f.kubectl(t, "", "-n", "openfaas", "rollout", "restart", "deployment/faas-infer")
			f.kubectl(t, "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=2m")
			await(t, "the earlier replicas to go", func() error {
				pods := strings.Fields(f.kubectl(t, "", "-n", "openfaas", "get", "pods", "-l", "app.kubernetes.io/component=provider", "-o", "name"))
				if len(pods) != 2 {
					return fmt.Errorf("there are %v", pods)
				}
				return nil
			})
		})
		answered, late, lost := c.take()
		t.Logf("rolled out in %v at %.0f requests/s: of %d requests %d late, lost %v", time.Since(began).Round(time.Millisecond), rate, answered, late, lost)
		if len(lost) > 0 || answered < 100 {
			t.Fatalf("of %d requests are lost: %v", answered, lost)
		}
		if float64(late) <= maxLate*float64(answered) {
			return
		}
		if try == tries {
			t.Errorf("of %d requests %d are late", answered, late)
			return
		}
	}
}

// drains drains the node of the model's instances. The first goes at once, the second when the
// node takes a new one again, as another node would.
func (f *fixture) drains(t *testing.T, c *clients, rate float64) {
	t.Helper()
	began := time.Now()
	before := f.readyPods(t, "digits")
	c.load(t.Context(), rate, func() {
		drained := make(chan error, 1)
		go func() {
			_, err := f.Kubectl(t.Context(), "", "drain", testcluster.NodeName, "--pod-selector=faas_function=digits", "--delete-emptydir-data", "--timeout=2m")
			drained <- err
		}()
		await(t, "the eviction of one instance", func() error {
			if got := f.readyPods(t, "digits"); len(got) != 1 {
				return fmt.Errorf("ready are %v", got)
			}
			return nil
		})
		// kubectl tries the other one again after 5 s.
		select {
		case err := <-drained:
			t.Errorf("the budget has let both go: %v", err)
		case <-time.After(6 * time.Second):
		}
		if got := f.readyPods(t, "digits"); len(got) != 1 {
			t.Errorf("ready are %v while the node takes none", got)
		}
		f.kubectl(t, "", "uncordon", testcluster.NodeName)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		f.twoReady(t, before...)
	})
	answered, late, lost := c.take()
	t.Logf("drained in %v at %.0f requests/s: of %d requests %d late, lost %v", time.Since(began).Round(time.Millisecond), rate, answered, late, lost)
	if len(lost) > 0 || answered < 100 {
		t.Error(errors.New(f.logs(t, "app.kubernetes.io/component=provider")))
		t.Errorf("of %d requests are lost: %v", answered, lost)
	}
}
