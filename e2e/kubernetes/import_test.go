package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/migrate"
)

// netes is what faas-netes and OpenFaaS' operator leave: figlet is of the first, whose Deployments select
// the label faas_function. nodeinfo is of the second, and belongs to an object of openfaas.com. The
// pods' sleep stands for OpenFaaS' watchdogs, which take connections for some seconds after SIGTERM.
const netes = `apiVersion: v1
kind: Secret
metadata: {name: api-key, namespace: openfaas-fn}
stringData: {api-key: secret}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: figlet, namespace: openfaas-fn, labels: {faas_function: figlet}, annotations: {prometheus.io.scrape: "false", topic: cron}}
spec:
  replicas: 2
  selector: {matchLabels: {faas_function: figlet}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata:
      name: figlet
      labels: {faas_function: figlet, uid: "471", team: blue, com.openfaas.scale.min: "1", com.openfaas.scale.max: "2"}
      annotations: {prometheus.io.scrape: "false", topic: cron}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers:
        - name: figlet
          image: IMAGE
          ports: [{name: http, containerPort: 8080, protocol: TCP}]
          env: [{name: fprocess, value: cat}, {name: write_timeout, value: 1m}]
          resources: {limits: {memory: 128Mi}, requests: {cpu: 10m}}
          readinessProbe: {httpGet: {path: /_/health, port: 8080}, periodSeconds: 1}
          lifecycle: {preStop: {sleep: {seconds: 5}}}
          securityContext: {readOnlyRootFilesystem: true}
          volumeMounts: [{name: figlet-projected-secrets, readOnly: true, mountPath: /var/openfaas/secrets}, {name: temp, mountPath: /tmp}]
      volumes:
        - {name: figlet-projected-secrets, projected: {sources: [{secret: {name: api-key, items: [{key: api-key, path: api-key}]}}]}}
        - {name: temp, emptyDir: {}}
---
apiVersion: v1
kind: Service
metadata: {name: figlet, namespace: openfaas-fn}
spec: {selector: {faas_function: figlet}, ports: [{name: http, port: 8080}]}
---
apiVersion: openfaas.com/v1
kind: Function
metadata: {name: nodeinfo, namespace: openfaas-fn}
spec: {name: nodeinfo, image: "IMAGE", handler: cat, environment: {write_debug: "true"}, labels: {com.openfaas.scale.min: "1", com.openfaas.scale.max: "1"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nodeinfo, namespace: openfaas-fn, labels: {faas_function: nodeinfo, app: nodeinfo, controller: nodeinfo}}
spec:
  replicas: 1
  selector: {matchLabels: {app: nodeinfo, controller: nodeinfo}}
  template:
    metadata: {labels: {faas_function: nodeinfo, app: nodeinfo, controller: nodeinfo, com.openfaas.scale.min: "1"}}
    spec:
      containers:
        - name: nodeinfo
          image: IMAGE
          ports: [{containerPort: 8080}]
          env: [{name: fprocess, value: cat}, {name: write_debug, value: "true"}]
          readinessProbe: {httpGet: {path: /_/health, port: 8080}, periodSeconds: 1}
          lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: nodeinfo, namespace: openfaas-fn}
spec: {selector: {faas_function: nodeinfo}, ports: [{name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: taken, namespace: openfaas-fn, labels: {faas_function: taken}}
spec:
  replicas: 0
  selector: {matchLabels: {faas_function: taken}}
  template: {metadata: {labels: {faas_function: taken}}, spec: {containers: [{name: taken, image: other}]}}
---
apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: taken, namespace: openfaas-fn}
spec: {image: "IMAGE", process: cat, labels: {com.openfaas.scale.min: "1"}}
`

// openfaasDefinition defines the Functions of OpenFaaS' operator, without a schema.
const openfaasDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: functions.openfaas.com}
spec:
  group: openfaas.com
  names: {kind: Function, plural: functions}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// traffic sends requests until stopped. Each must be echoed.
type traffic struct {
	mu      sync.Mutex
	sent    int
	lost    map[string]int
	stop    chan struct{}
	clients sync.WaitGroup
}

// dialer connects to an address, net.Dialer's if nil.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// byService connects as faas-netes does: to any of the addresses that the Service of a name has, which it
// watches.
func (f *fixture) byService(t *testing.T) dialer {
	t.Helper()
	client, err := kubernetes.NewForConfig(f.Config())
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("openfaas-fn"))
	slices := factory.Discovery().V1().EndpointSlices().Lister()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		name, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		of, err := slices.List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name}))
		if err != nil {
			return nil, err
		}
		var all []string
		for _, s := range of {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					all = append(all, e.Addresses...)
				}
			}
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("Service %s has no address", name)
		}
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(all[rand.IntN(len(all))], port))
	}
}

// send begins two clients for each URL. Each request has a connection of its own, as through a proxy
// that looks for an address each time.
func send(dial dialer, urls ...string) *traffic {
	l := &traffic{lost: map[string]int{}, stop: make(chan struct{})}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: 30 * time.Second}
	for _, url := range urls {
		for range 2 {
			l.clients.Go(func() {
				for pace := time.NewTicker(20 * time.Millisecond); ; {
					select {
					case <-l.stop:
						pace.Stop()
						return
					case <-pace.C:
					}
					why := ""
					answer, err := client.Post(url, "text/plain", strings.NewReader("hello"))
					if err != nil {
						why = err.Error()
					} else {
						if answer.StatusCode != http.StatusOK {
							why = fmt.Sprintf("%s: %s", url, answer.Status)
						}
						_ = answer.Body.Close()
					}
					l.mu.Lock()
					if l.sent++; why != "" {
						l.lost[why]++
					}
					l.mu.Unlock()
				}
			})
		}
	}
	return l
}

// end stops the clients and fails the test if a request was lost.
func (l *traffic) end(t *testing.T, what string) {
	t.Helper()
	close(l.stop)
	l.clients.Wait()
	t.Logf("%s: %d requests, lost %v", what, l.sent, l.lost)
	if len(l.lost) > 0 || l.sent < 100 {
		t.Errorf("%s: %d requests, of which are lost: %v", what, l.sent, l.lost)
	}
}

// Functions move from faas-netes to faas-infer and back under load, and no request is lost: neither of
// those that come by the Services, as from faas-netes, nor of those that come by the provider.
func TestImport(t *testing.T) {
	f := shared(t)
	image := f.pushAlpine(t)
	// faas-netes' pods are not restricted ones.
	f.kubectl(t, "", "label", "namespace", "openfaas-fn", "pod-security.kubernetes.io/enforce=baseline", "--overwrite")
	t.Cleanup(func() {
		_, err := f.Kubectl(context.Background(), "", "delete", "crd/functions.openfaas.com", "--ignore-not-found")
		// kubectl must not look for "functions" in that group any longer.
		if err := errors.Join(err, os.RemoveAll(filepath.Join(f.Dir(), "kubectl"))); err != nil {
			t.Error(err)
		}
	})
	f.kubectl(t, openfaasDefinition, "apply", "-f", "-")
	if err := f.Defined(t.Context(), "functions.openfaas.com"); err != nil {
		t.Fatal(err)
	}
	f.kubectl(t, strings.ReplaceAll(netes, "IMAGE", image), "apply", "-f", "-")
	f.kubectl(t, "", "-n", "openfaas-fn", "wait", "--for=condition=Available", "deployment/figlet", "deployment/nodeinfo", "--timeout=3m")
	url := f.provider(t, "one")
	f.importErrors(t)

	const lossy = "nothing: it would lose the container's lifecycle hooks; --accept-losses moves it without that"
	if shown, err := f.imports("figlet", "--dry-run"); err != nil || !strings.Contains(shown, lossy) {
		t.Errorf("shown is not %q in\n%s, %v", lossy, shown, err)
	}
	shown, err := f.imports("--dry-run", "--accept-losses")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"figlet    openfaas-fn  Deployment             " + image + "  2     create the function, scale the Deployment to 0",
		"nodeinfo  openfaas-fn  openfaas.com Function  " + image + "  1     create the function, scale the Deployment to 0",
		"nothing: it exists with the image " + image + "; --overwrite replaces it",
		"figlet.openfaas-fn is not given the container's lifecycle hooks",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("shown is not %q in\n%s", want, shown)
		}
	}
	if got := f.state(t); got != "figlet 2 , nodeinfo 1 , | taken" {
		t.Fatalf("a dry run leaves %s", got)
	}

	before := send(f.byService(t), "http://figlet:8080/", "http://nodeinfo:8080/")
	out, err := f.imports("--keep-running", "--accept-losses")
	if err == nil || !strings.Contains(err.Error(), "1 of 3 functions have not been moved") {
		t.Fatal(out, err)
	}
	if got := f.state(t); got != "figlet 2 , figlet-faas-infer 2 , nodeinfo 1 , nodeinfo-faas-infer 1 , | figlet nodeinfo taken" {
		t.Fatalf("after an import that keeps the Deployments: %s", got)
	}
	after := send(nil, url+"/function/figlet", url+"/function/nodeinfo")
	if out, err := f.imports("figlet", "nodeinfo", "--accept-losses"); err != nil {
		t.Fatal(out, err)
	}
	await(t, "the end of faas-netes' pods", func() error {
		if got := f.kubectl(t, "", "-n", "openfaas-fn", "get", "pods", "-l", "faas_function in (figlet,nodeinfo),app.kubernetes.io/managed-by!=faas-infer", "-o", "name"); got != "" {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	})
	moved := f.state(t)
	if moved != "figlet 0 2, figlet-faas-infer 2 , nodeinfo 0 1, nodeinfo-faas-infer 1 , | figlet nodeinfo taken" {
		t.Errorf("after the import: %s", moved)
	}
	if out, err := f.imports("figlet", "nodeinfo"); err != nil || f.state(t) != moved || !strings.Contains(out, "keep the function") {
		t.Errorf("a second import: %s %v", out, err)
	}
	after.end(t, "by the provider")

	if shown, err = f.imports("--undo", "--dry-run"); err != nil || !strings.Contains(shown, "scale the Deployment to 2, delete the function") || f.state(t) != moved {
		t.Errorf("a dry run of undoing: %s, %v", shown, err)
	}
	if out, err := f.imports("--undo"); err != nil {
		t.Fatal(out, err)
	}
	await(t, "the end of the functions' pods", func() error {
		if got := f.kubectl(t, "", "-n", "openfaas-fn", "get", "pods", "-l", "faas_function in (figlet,nodeinfo),app.kubernetes.io/managed-by=faas-infer", "-o", "name"); got != "" {
			return fmt.Errorf("there are %s", got)
		}
		return nil
	})
	if got := f.state(t); got != "figlet 2 , nodeinfo 1 , | taken" {
		t.Errorf("undone: %s", got)
	}
	before.end(t, "by the Services")
}

// imports runs "faas-infer-kubernetes import".
func (f *fixture) imports(arguments ...string) (string, error) {
	return run(append([]string{f.program("faas-infer-kubernetes"), "import", "--kubeconfig", f.Kubeconfig(), "--timeout", "3m"}, arguments...)...)
}

// state lists the Deployments but for taken's, each with its number of pods and its mark, and the functions.
func (f *fixture) state(t *testing.T) string {
	t.Helper()
	deployments := f.kubectl(t, "", "-n", "openfaas-fn", "get", "deployments", "-l", "faas_function!=taken", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.replicas} {.metadata.labels.faas-infer\.dev/retired}, {end}`)
	return deployments + " | " + f.kubectl(t, "", "-n", "openfaas-fn", "get", "functions.faas-infer.dev", "-o", "jsonpath={.items[*].metadata.name}")
}

// importErrors imports where that cannot work.
func (f *fixture) importErrors(t *testing.T) {
	t.Helper()
	if _, err := f.imports("-n", "nowhere", "--dry-run"); err == nil || !strings.Contains(err.Error(), `there is no namespace "nowhere"`) {
		t.Error(err)
	}
	if _, err := f.imports("figlte", "--dry-run"); err == nil || !strings.Contains(err.Error(), "no functions of faas-netes called figlte") {
		t.Error(err)
	}
	if _, err := f.imports("--undo", "figlet"); err == nil || !strings.Contains(err.Error(), "no imported functions called figlet") {
		t.Error(err)
	}
	if _, err := f.imports("--kubeconfig", filepath.Join(t.TempDir(), "absent")); err == nil || !strings.Contains(err.Error(), "cannot reach the cluster") {
		t.Error(err)
	}
	config := f.Config()
	config.Impersonate.UserName = "nobody"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	m := migrate.Mover{Client: client, Dynamic: objects}
	if _, err := m.Look(t.Context(), "openfaas-fn"); err == nil || !strings.Contains(err.Error(), `"nobody" cannot list resource "functions" in API group "faas-infer.dev"`) {
		t.Error(err)
	}
	if err := m.Allowed(t.Context(), []string{"openfaas-fn"}); err == nil || !strings.Contains(err.Error(), "create functions.faas-infer.dev in namespace openfaas-fn, nor update") {
		t.Error(err)
	}
}
