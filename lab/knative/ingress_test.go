package knative

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ingressOf is an ingress of Knative with two revisions.
const ingressOf = `{
  "apiVersion": "networking.internal.knative.dev/v1alpha1", "kind": "Ingress",
  "metadata": {"name": "digits", "namespace": "team", "generation": 2},
  "spec": {"rules": [{
    "hosts": ["digits.team.example.com", "digits.team"],
    "http": {"paths": [{"splits": [
      {"serviceNamespace": "team", "serviceName": "digits-1", "percent": 30,
       "appendHeaders": {"Knative-Serving-Revision": "digits-1"}},
      {"serviceNamespace": "team", "serviceName": "digits-2", "percent": 70,
       "appendHeaders": {"Knative-Serving-Revision": "digits-2"}}
    ], "appendHeaders": {"X-All": "yes"}}]}}]}
}`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// A route has the addresses of its revisions in Knative's shares. Knative hears that it is ready once
// each revision has an address, and only once.
func TestRoutes(t *testing.T) {
	o := parse(t, ingressOf)
	known := map[string][]string{"team/digits-1": {"10.0.0.1:8012"}}
	search := func(namespace, service string) []string { return known[namespace+"/"+service] }
	if _, ready, err := routesOf([]runtime.Object{o}, search); err != nil || len(ready) != 0 {
		t.Errorf("ready are %v, %v, although a revision has no address", ready, err)
	}
	known["team/digits-2"] = []string{"10.0.0.2:8012", "10.0.0.3:8012"}
	routes, ready, err := routesOf([]runtime.Object{o}, search)
	if err != nil || len(ready) != 1 || len(routes) != 2 {
		t.Fatalf("%v, %v, %v", routes, ready, err)
	}
	first := func(int) int { return 0 }
	const one, two = "10.0.0.1:8012", "10.0.0.2:8012"
	for draw, want := range map[int]string{0: one, 29: one, 30: two, 99: two} {
		address, headers := routes["digits.team"].choose(draw, first)
		revision := headers["Knative-Serving-Revision"]
		if address != want || headers["X-All"] != "yes" || !strings.HasPrefix(revision, "digits-") {
			t.Errorf("%d goes to %s with %v, want %s", draw, address, headers, want)
		}
	}
	var told map[string]any
	if err := json.Unmarshal(statusOf(o, time.Unix(0, 0)), &told); err != nil {
		t.Fatal(err)
	}
	// The API server has the number as an integer.
	told["status"].(map[string]any)["observedGeneration"] = int64(2)
	o.Object["status"] = told["status"]
	if _, ready, err := routesOf([]runtime.Object{o}, search); err != nil || len(ready) != 0 {
		t.Errorf("%v is told again, %v", ready, err)
	}
}

func TestAddresses(t *testing.T) {
	e := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
		Addresses:         []corev1.EndpointAddress{{IP: "10.0.0.1"}, {IP: "10.0.0.2"}},
		NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.3"}},
		Ports:             []corev1.EndpointPort{{Name: "http", Port: 8012}, {Name: "https", Port: 8112}},
	}}}
	if got := addresses(e); !slices.Equal(got, []string{"10.0.0.1:8012", "10.0.0.2:8012"}) {
		t.Error(got)
	}
}

// The proxy keeps the host and adds Knative's headers. A host without an address is an error.
func TestForwards(t *testing.T) {
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+" "+r.Header.Get("Knative-Serving-Revision")+" "+r.URL.Path)
	}))
	defer instance.Close()
	i := &Ingress{}
	i.routes.Store(&map[string]route{"digits.team": {splits: []split{{
		percent:   100,
		addresses: []string{strings.TrimPrefix(instance.URL, "http://")},
		headers:   map[string]string{"Knative-Serving-Revision": "digits-1"},
	}}}})
	front := httptest.NewServer(i.handler())
	defer front.Close()
	for host, want := range map[string]string{
		"digits.team": "digits.team digits-1 /v2",
		"other.team":  "ingress: no address for other.team",
	} {
		r, err := http.NewRequest(http.MethodGet, front.URL+"/v2", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
}

// Objects that Knative's webhook checks are apart from the webhook.
func TestApart(t *testing.T) {
	const certificate = "---\napiVersion: x\nkind: Certificate\nname: b\n"
	others, checked := apart("---\nkind: Service\nname: a\n" + certificate + "---\nkind: Role\nname: c\n")
	has := func(name string) bool { return strings.Contains(others, "name: "+name) }
	if has("b") || !has("a") || !has("c") {
		t.Errorf("the others are %q", others)
	}
	if !strings.Contains(checked, "name: b") || strings.Contains(checked, "name: a") {
		t.Errorf("the checked are %q", checked)
	}
}

// The body is a picture of 28 × 28.
func TestBody(t *testing.T) {
	var request struct {
		Instances [][][][]float32 `json:"instances"`
	}
	if err := json.Unmarshal([]byte(body), &request); err != nil {
		t.Fatal(err)
	}
	if p := request.Instances; len(p) != 1 || len(p[0]) != 1 || len(p[0][0]) != 28 || len(p[0][0][27]) != 28 {
		t.Error(body)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for want, edit := range map[string]func(*Bench){
		"--cold -1": func(b *Bench) { b.Cold = -1 }, "--rollouts 0": func(b *Bench) { b.Cold, b.Rollouts = 0, 0 },
		"--block": func(b *Bench) { b.Block = 0 }, "--rate": func(b *Bench) { b.Rate = 1000 },
	} {
		b := Default()
		edit(&b)
		if err := b.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if err := Default().Check(); err != nil {
		t.Error(err)
	}
}
