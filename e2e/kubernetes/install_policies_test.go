package kubernetes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// visitor is a pod within Pod Security's "restricted", from which tests connect to others.
const visitor = `apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s, labels: {app: %[2]s}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: visitor
    image: %[3]s
    command: ["/bin/sleep", "3600"]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

const (
	provider = "http://faas-infer.openfaas.svc.cluster.local:8081"
	api      = "http://faas-infer-api.openfaas.svc.cluster.local:8080"
	gateway  = "http://gateway.openfaas.svc.cluster.local:8080"
	queue    = "http://nats.openfaas.svc.cluster.local:4222"
	words    = "http://words.openfaas-fn.svc.cluster.local:8080"
)

// The pods that ask, as kubectl names them with their namespace.
var (
	theGateway = [2]string{"openfaas", "deployment/gateway"}
	stranger   = [2]string{"default", "pod/stranger"}
	neighbour  = [2]string{"openfaas", "pod/neighbour"}
	prometheus = [2]string{"openfaas", "pod/prometheus"}
)

// visitors starts the pods that ask, other than the gateway.
func (f *fixture) visitors(t *testing.T) {
	t.Helper()
	image, err := f.PushTools("visitor:1", map[string]string{"/bin/kubectl": filepath.Join(f.Binaries(), "bin/kubectl")}, v1.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range [][2]string{stranger, neighbour, prometheus} {
		name := strings.TrimPrefix(v[1], "pod/")
		f.kubectl(t, fmt.Sprintf(visitor, v[0], name, image), "apply", "-f", "-")
		f.kubectl(t, "", "-n", v[0], "wait", "--for=condition=Ready", v[1], "--timeout=5m")
	}
}

// keepsOut connects from pods that network policies allow and from others. Only the gateway
// reaches the provider, only the provider reaches the functions, everybody reaches the
// gateway, and Prometheus reaches its targets.
func (f *fixture) keepsOut(t *testing.T) {
	t.Helper()
	var model string
	await(t, "an instance of the model", func() (err error) {
		model, err = f.instance(t)
		return err
	})
	replica := f.replicas(t)[0]
	f.reach(t, theGateway, provider+"/healthz", queue)
	f.reach(t, stranger, gateway+"/healthz")
	f.reach(t, neighbour, gateway+"/healthz")
	f.refused(t, stranger, provider+"/healthz", replica+"/healthz", queue, words, model)
	f.refused(t, neighbour, provider+"/healthz", words, queue)
	f.refused(t, theGateway, words, model)

	scrapes := "http://" + f.kubectl(t, "", "-n", "openfaas", "get", "pods", "-l", "app=gateway", "-o", "jsonpath={.items[0].status.podIP}") + ":8082/metrics"
	f.refused(t, prometheus, replica+"/metrics", scrapes)
	f.kubectl(t, scrapePolicies(t), "apply", "-f", "-")
	f.reach(t, prometheus, replica+"/metrics", scrapes)
	f.refused(t, neighbour, replica+"/metrics", scrapes)

	// It is the policies that keep them out.
	before := f.kubectl(t, "", "-n", "openfaas-fn", "get", "networkpolicy/faas-infer-functions", "-o", "yaml")
	f.kubectl(t, "", "-n", "openfaas-fn", "delete", "networkpolicy/faas-infer-functions")
	f.reach(t, stranger, words)
	await(t, "a way to the model", func() error {
		// Another instance may have taken the first one's place.
		model, err := f.instance(t)
		return errors.Join(err, f.lets(t, stranger, model, true))
	})
	f.kubectl(t, before, "apply", "-f", "-")
	await(t, "the policy to hold again", func() error { return f.lets(t, stranger, words, false) })
	for _, v := range [][2]string{stranger, neighbour, prometheus} {
		f.kubectl(t, "", "-n", v[0], "delete", v[1])
	}
}

// instance returns the address of an instance of the page's model.
func (f *fixture) instance(t *testing.T) (string, error) {
	t.Helper()
	address, err := f.Kubectl(t.Context(), "", "-n", "openfaas-fn", "get", "pods", "-l", "faas_function=mnist",
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[0].status.podIP}")
	return "http://" + address + ":8080", err
}

// scrapePolicies returns the network policies of the option prometheus.
func scrapePolicies(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../yaml/options/prometheus/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(object, "kind: NetworkPolicy") {
			all = append(all, object)
		}
	}
	return strings.Join(all, "\n---\n")
}

// reach fails the test unless a pod can soon connect to all URLs.
func (f *fixture) reach(t *testing.T, from [2]string, urls ...string) {
	t.Helper()
	for _, url := range urls {
		await(t, "a way", func() error { return f.lets(t, from, url, true) })
	}
}

// refused fails the test if a pod can connect to any URL. It repeats inconclusive attempts.
func (f *fixture) refused(t *testing.T, from [2]string, urls ...string) {
	t.Helper()
	// At the same time, as each takes as long as the asking pod is patient.
	answers := make(chan error)
	for _, url := range urls {
		go func() {
			for end := time.Now().Add(moment); ; {
				err := f.lets(t, from, url, false)
				if !errors.Is(err, errUntold) || time.Now().After(end) {
					answers <- err
					return
				}
			}
		}()
	}
	for range urls {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// errUntold is wrapped by errors that do not show whether a pod can connect.
var errUntold = errors.New("it cannot be told whether it is reached")

// lets returns nil if a pod can or cannot connect, as expected. A policy drops packets, so
// a refused connection shows as a timeout.
func (f *fixture) lets(t *testing.T, from [2]string, url string, want bool) error {
	server, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	out, err := f.Kubectl(t.Context(), "", "-n", from[0], "exec", from[1], "--",
		"kubectl", "--server", "http://"+server, "--request-timeout", "2s", "get", "--raw", "/"+path)
	reached := err == nil
	if err != nil {
		complaint := err.Error()
		vanished := strings.Contains(complaint, "i/o timeout") || strings.Contains(complaint, "deadline exceeded") || strings.Contains(complaint, "Client.Timeout")
		// Whoever answers something else than was asked for has been reached.
		reached = strings.Contains(complaint, "malformed HTTP") || strings.Contains(complaint, "Error from server")
		if !reached && !vanished {
			return fmt.Errorf("%s asks %s: %w: %w", from, url, errUntold, err)
		}
	}
	if reached != want {
		return errors.Join(fmt.Errorf("%s reaches %s: %v, want %v: %s", from, url, reached, want, out), err)
	}
	return nil
}
