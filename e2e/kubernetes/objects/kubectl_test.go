package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// applied returns a Function as a user writes it.
func applied(namespace, name, image, latency string) string {
	return fmt.Sprintf(`apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: %s, namespace: %s}
spec:
  image: %q
  annotations: {com.openfaas.slo.latency: %q}
`, name, namespace, image, latency)
}

// Functions that kubectl applies, edits, scales and deletes change at all replicas, with
// one revision, which the leader assigns.
func TestKubectl(t *testing.T) {
	a, b := start(t, true), start(t, false)
	same := func(name string) uint64 {
		t.Helper()
		var x uint64
		eventually(t, func() string {
			var y uint64
			if x, y = a.revision(name), b.revision(name); x != y || x == 0 {
				return fmt.Sprintf("revisions %d and %d", x, y)
			}
			return ""
		})
		return x
	}
	kubectl(t, applied("openfaas-fn", "byhand", "byhand:1", "50ms"), "apply", "-f", "-")
	a.invoked(t, "byhand", "byhand:1")
	b.invoked(t, "byhand", "byhand:1")
	first := same("byhand.openfaas-fn")
	kubectl(t, applied("openfaas-fn", "byhand", "byhand:2", "50ms"), "apply", "-f", "-")
	a.invoked(t, "byhand", "byhand:2")
	b.invoked(t, "byhand", "byhand:2")
	if second := same("byhand.openfaas-fn"); second <= first {
		t.Errorf("revision %d after %d", second, first)
	}
	kubectl(t, "", "scale", "fn/byhand", "-n", "openfaas-fn", "--replicas=4")
	eventually(t, func() string {
		for _, r := range []*replica{a, b} {
			r.mu.Lock()
			n := r.scaled["byhand.openfaas-fn"]
			r.mu.Unlock()
			if n != 4 {
				return fmt.Sprintf("scaled to %d", n)
			}
		}
		return ""
	})
	if a.counted() != 2 || b.counted() != 2 {
		t.Errorf("deployed %d and %d times", a.counted(), b.counted())
	}
	kubectl(t, "", "delete", "fn/byhand", "-n", "openfaas-fn")
	a.absent(t, "byhand")
	b.absent(t, "byhand")
}

// An invalid spec is reported in the status. The running revision and the other functions
// keep serving, also after a restart.
func TestNonsenseByHand(t *testing.T) {
	a := start(t, true)
	for _, name := range []string{"good", "bad"} {
		kubectl(t, applied("openfaas-fn", name, name+":1", "50ms"), "apply", "-f", "-")
		a.invoked(t, name, name+":1")
	}
	kubectl(t, applied("openfaas-fn", "bad", "bad:2", "fast"), "apply", "-f", "-")
	eventually(t, func() string { return stillTelling(t, "bad", "Accepted", "False") })
	eventually(t, func() string { return stillTelling(t, "bad", "Why", `com.openfaas.slo.latency is "fast"`) })
	eventually(t, func() string { return stillTelling(t, "bad", "Missing", "the previous deployment is served") })
	a.invoked(t, "bad", "bad:1")
	kubectl(t, applied("openfaas-fn", "good", "good:2", "50ms"), "apply", "-f", "-")
	a.invoked(t, "good", "good:2")

	b := start(t, false)
	b.invoked(t, "good", "good:2")
	b.invoked(t, "bad", "bad:1")
	if x, y := a.revision("bad.openfaas-fn"), b.revision("bad.openfaas-fn"); x != y {
		t.Errorf("after a restart revision %d is served, not %d", y, x)
	}
	// Annotations that are ours, written by hand, break nothing.
	kubectl(t, "", "annotate", "--overwrite", "fn/good", "-n", "openfaas-fn", "faas-infer.dev/revision=99999999999999999999", "faas-infer.dev/hash=x")
	kubectl(t, applied("openfaas-fn", "bad", "bad:3", "40ms"), "apply", "-f", "-")
	for _, r := range []*replica{a, b} {
		r.invoked(t, "bad", "bad:3")
		r.invoked(t, "good", "good:2")
	}
	eventually(t, func() string { return stillTelling(t, "bad", "Accepted", "True") })
	kubectl(t, "", "delete", "fn", "--all", "-n", "openfaas-fn")
	a.absent(t, "good")
}

// A refusal by the controller is reported. The function is accepted as soon as it can be,
// although its object does not change.
func TestRefusedByTheController(t *testing.T) {
	a := start(t, true)
	a.mu.Lock()
	a.refuse["late:1"] = errors.New(`image "late:1" is not in the registry`)
	a.mu.Unlock()
	kubectl(t, applied("openfaas-fn", "late", "late:1", "50ms"), "apply", "-f", "-")
	eventually(t, func() string { return stillTelling(t, "late", "Why", "is not in the registry") })
	eventually(t, func() string { return stillTelling(t, "late", "Missing", "nothing runs") })
	if w := a.do("POST", "/function/late", "x"); w.Code != 503 || !strings.Contains(w.Body.String(), "is not in the registry") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	a.mu.Lock()
	delete(a.refuse, "late:1")
	a.mu.Unlock()
	a.invoked(t, "late", "late:1")
	eventually(t, func() string { return stillTelling(t, "late", "Accepted", "True") })
	kubectl(t, "", "delete", "fn/late", "-n", "openfaas-fn")
}

// The schema refuses invalid objects at once, where it can.
func TestSchema(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{}}`:                                         "spec.image",
		`{"spec":{"image":""}}`:                               "spec.image",
		`{"spec":{"image":"i","replicas":-1}}`:                "spec.replicas",
		`{"spec":{"image":"i","limits":{"cpu":1}}}`:           "spec.limits.cpu",
		`{"spec":{"image":"i","environment":{"A":{"b":1}}}}`:  "spec.environment",
		`{"spec":{"image":"i","unknown":1}}`:                  "unknown",
		`{"metadata":{"name":"a.b"},"spec":{"image":"i"}}`:    "have no dot",
		`{"spec":{"image":"i","annotations":"com.openfaas"}}`: "spec.annotations",
	} {
		whole := `{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function",` + text[1:]
		if !strings.Contains(text, "metadata") {
			whole = strings.Replace(whole, `"spec"`, `"metadata":{"name":"x"},"spec"`, 1)
		}
		if _, err := cluster.Kubectl(t.Context(), whole, "create", "-n", "openfaas-fn", "-f", "-"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not name %s", text, err, want)
		}
	}
}

// Functions in a namespace that is not one for functions do not run and say why. They run
// once it is one, and stop when it no longer is.
func TestANamespaceThatIsNotAllowed(t *testing.T) {
	a, b := start(t, true), start(t, false)
	kubectl(t, "", "create", "namespace", "other")
	kubectl(t, applied("other", "alien", "alien:1", "50ms"), "apply", "-f", "-")
	eventually(t, func() string {
		out := kubectl(t, "", "get", "fn", "alien", "-n", "other", "-o", "jsonpath={.status.conditions[*].message}")
		if !strings.Contains(out, "kubectl annotate namespace other openfaas=1") {
			return out
		}
		return ""
	})
	a.absent(t, "alien.other")
	if w := a.do("POST", "/system/namespace/other", `{"name":"other"}`); w.Code != 409 || !strings.Contains(w.Body.String(), "is not for functions") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	a.must(t, 404, "DELETE", "/system/namespace/other", `{"name":"other"}`)
	a.must(t, 400, "POST", "/system/functions", strings.Replace(deployment("x", "x:1", nil), `"service"`, `"namespace":"kube-system","service"`, 1))
	kubectl(t, "", "annotate", "namespace", "other", "openfaas=1")
	for _, r := range []*replica{a, b} {
		r.invoked(t, "alien.other", "alien:1")
	}
	kubectl(t, "", "annotate", "namespace", "other", "openfaas-")
	for _, r := range []*replica{a, b} {
		r.absent(t, "alien.other")
	}
	kubectl(t, "", "delete", "namespace", "other", "--wait=false")
}
