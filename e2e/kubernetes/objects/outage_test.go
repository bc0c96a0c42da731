package objects

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Without a leader, changes by kubectl wait. The next leader handles them.
func TestWhileNobodyLeads(t *testing.T) {
	a, b := start(t, false), start(t, false)
	kubectl(t, applied("openfaas-fn", "waits", "waits:1", "50ms"), "apply", "-f", "-")
	a.must(t, 202, "POST", "/system/functions", deployment("goes", "goes:1", nil))
	b.invoked(t, "goes", "goes:1") // It came after the other.
	if w := b.do("POST", "/function/waits", "x"); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	a.leading.Store(true)
	a.invoked(t, "waits", "waits:1")
	b.invoked(t, "waits", "waits:1")
	kubectl(t, "", "delete", "fn", "--all", "-n", "openfaas-fn")
	b.absent(t, "waits")
}

// Without the API server, functions are served, and changes are refused with the fix.
// Afterwards functions that nobody changed are unchanged, and new changes come through.
func TestWithoutTheAPIServer(t *testing.T) {
	a := start(t, true)
	a.must(t, 202, "POST", "/system/functions", deployment("served", "served:1", nil))
	a.invoked(t, "served", "served:1")
	if err := cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, change := range []struct{ method, target, body string }{
		{"POST", "/system/functions", deployment("served", "served:2", nil)},
		{"POST", "/system/scale-function/served", `{"replicas":3}`},
		{"DELETE", "/system/functions", `{"functionName":"served"}`},
		{"POST", "/system/secrets", `{"name":"s","value":"v"}`},
		{"POST", "/system/namespace/", `{"name":"n"}`},
	} {
		w := a.do(change.method, change.target, change.body)
		if w.Code != 503 || !strings.Contains(w.Body.String(), "API server cannot answer") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s", change.method, change.target, w.Code, w.Body)
		}
		if got := a.must(t, 200, "POST", "/function/served", "x"); got != "served:1" {
			t.Errorf("%s serves", got)
		}
	}
	t.Logf("five changes were refused in %v", time.Since(began))
	// Were the client not patient it would ask less and less often, soon once a minute, so
	// that this took many. It asks for functions and for namespaces.
	const often = 40
	before := a.unanswered.Load()
	eventually(t, func() string {
		if n := a.unanswered.Load() - before; n < often {
			return fmt.Sprintf("the client has asked %d times", n)
		}
		return ""
	})
	t.Logf("asked %d times in vain within %v", often, time.Since(began))
	a.must(t, 404, "POST", "/function/nobody", "x")
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	// kubectl itself waits until the API server has learned its schemas again.
	kubectl(t, applied("openfaas-fn", "served", "served:3", "50ms"), "apply", "-f", "-")
	told := time.Now()
	a.invoked(t, "served", "served:3")
	t.Logf("news came after %v", time.Since(told))
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"served"}`)
}

// One replica creates a namespace and another deploys into it at once. They agree.
func TestAFunctionInANewNamespace(t *testing.T) {
	a, b := start(t, true), start(t, false)
	for n := range 5 {
		name := fmt.Sprintf("new-%d", n)
		a.must(t, 201, "POST", "/system/namespace/", fmt.Sprintf(`{"name":%q}`, name))
		b.must(t, 202, "POST", "/system/functions", strings.Replace(deployment("f", "f:1", nil), `"service"`, fmt.Sprintf(`"namespace":%q,"service"`, name), 1))
		if w := b.do("POST", "/function/f."+name, "x"); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		a.invoked(t, "f."+name, "f:1")
		b.must(t, 200, "GET", "/system/function/f?namespace="+name, "")
		a.must(t, 202, "DELETE", "/system/namespace/"+name, "")
		b.absent(t, "f."+name)
	}
	if a.counted() != 5 || b.counted() != 5 {
		t.Errorf("deployed %d and %d times", a.counted(), b.counted())
	}
}
