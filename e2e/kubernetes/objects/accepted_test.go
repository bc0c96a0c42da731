package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// refusing returns an edit that makes the controller refuse an image.
func refusing(image string) func(*controller) {
	return func(c *controller) { c.refuse[image] = errors.New("image " + image + " is not in the registry") }
}

// accepted waits until an object's status records that an image was accepted.
func accepted(t *testing.T, name, image string) {
	t.Helper()
	eventually(t, func() string {
		if out := kubectl(t, "", "get", "fn", name, "-n", "openfaas-fn", "-o", "jsonpath={.status.deployed.spec.image}"); out != image {
			return "accepted is " + out
		}
		return ""
	})
}

// A replica starts while a function's spec is invalid or refused. It serves the last
// accepted spec, and does not write repeatedly. A function that was never accepted is not
// served, and its status says why.
func TestWhatWasAcceptedOutlivesARestart(t *testing.T) {
	a := start(t, true, refusing("typo:2"), refusing("never:1"))
	for _, name := range []string{"typo", "nonsense"} {
		a.must(t, 202, "POST", "/system/functions", deployment(name, name+":1", nil))
		accepted(t, name, name+":1")
	}
	kubectl(t, "", "patch", "fn/typo", "-n", "openfaas-fn", "--type=merge", "-p", `{"spec":{"image":"typo:2"}}`)
	kubectl(t, "", "patch", "fn/nonsense", "-n", "openfaas-fn", "--type=merge", "-p", `{"spec":{"limits":{"memory":"128m"},"image":"nonsense:2"}}`)
	kubectl(t, applied("openfaas-fn", "never", "never:1", "50ms"), "apply", "-f", "-")
	eventually(t, func() string { return stillTelling(t, "typo", "Why", "is not in the registry") })
	eventually(t, func() string { return stillTelling(t, "nonsense", "Why", "128m") })
	eventually(t, func() string { return stillTelling(t, "never", "Missing", "nothing runs") })
	serve := func(r *replica) {
		t.Helper()
		r.invoked(t, "typo", "typo:1")
		r.invoked(t, "nonsense", "nonsense:1")
		if w := r.do("POST", "/function/never", "x"); w.Code != 503 || !strings.Contains(w.Body.String(), "is not in the registry") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	serve(a)
	a.leading.Store(false)
	b := start(t, true, refusing("typo:2"), refusing("never:1"))
	serve(b)
	for name, why := range map[string]string{"typo": "is not in the registry", "nonsense": "128m"} {
		eventually(t, func() string { return stillTelling(t, name, "Missing", "the previous deployment is served") })
		// So do both replicas where faas-cli asks, whoever has found it.
		for _, r := range []*replica{a, b} {
			eventually(t, func() string { return r.describes(t, name, "the previous deployment is served: ", why) })
		}
		accepted(t, name, name+":1")
		if x, y := a.revision(name+".openfaas-fn"), b.revision(name+".openfaas-fn"); x != y || x == 0 {
			t.Errorf("%s: after a restart revision %d is served, not %d", name, y, x)
		}
	}
	// Mended, it is as it is said again, and remembered as that.
	kubectl(t, "", "patch", "fn/typo", "-n", "openfaas-fn", "--type=merge", "-p", `{"spec":{"image":"typo:3"}}`)
	kubectl(t, "", "patch", "fn/nonsense", "-n", "openfaas-fn", "--type=merge", "-p", `{"spec":{"limits":null,"image":"nonsense:3"}}`)
	for _, name := range []string{"typo", "nonsense"} {
		for _, r := range []*replica{a, b} {
			r.invoked(t, name, name+":3")
			eventually(t, func() string { return r.describes(t, name, "") })
		}
		accepted(t, name, name+":3")
	}
	kubectl(t, "", "delete", "fn", "--all", "-n", "openfaas-fn")
	b.absent(t, "typo")
}

// The recorded accepted spec has no field that was removed from the spec.
func TestWhatIsAcceptedIsWhole(t *testing.T) {
	a := start(t, true)
	kubectl(t, `{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function","metadata":{"name":"whole","namespace":"openfaas-fn"},"spec":{
		"image":"whole:1","environment":{"A":"1","B":"2"},"limits":{"cpu":"2"},"annotations":{"com.openfaas.slo.latency":"50ms"}}}`, "apply", "-f", "-")
	accepted(t, "whole", "whole:1")
	kubectl(t, `{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function","metadata":{"name":"whole","namespace":"openfaas-fn"},"spec":{
		"image":"whole:2","environment":{"B":"2"},"annotations":{"com.openfaas.slo.latency":"50ms"}}}`, "apply", "-f", "-")
	accepted(t, "whole", "whole:2")
	const want = `{"annotations":{"com.openfaas.slo.latency":"50ms"},"environment":{"B":"2"},"image":"whole:2"}`
	if out := kubectl(t, "", "get", "fn", "whole", "-n", "openfaas-fn", "-o", "jsonpath={.status.deployed.spec}"); out != want {
		t.Errorf("%s is remembered, not %s", out, want)
	}
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"whole"}`)
}

// The settings of an image also apply to functions from kubectl, at all replicas. After a
// restart they are those of the deployment. Another image brings other settings.
func TestWhatImagesBringAlong(t *testing.T) {
	brings := func(c *controller) {
		c.brings["model:1"] = map[string]string{"com.openfaas.slo.latency": "70ms", "com.openfaas.scale.max": "4"}
		c.brings["model:2"] = map[string]string{"com.openfaas.slo.latency": "80ms"}
		c.brings["model:3"] = map[string]string{"com.openfaas.slo.latency": "soon"}
	}
	a, b := start(t, true, brings), start(t, false, brings)
	const bare = `{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function","metadata":{"name":"brings","namespace":"openfaas-fn"},"spec":{"image":%q,"labels":{"com.openfaas.scale.max":"6"}}}`
	shows := func(r *replica, image, slo string) {
		t.Helper()
		r.invoked(t, "brings", image)
		r.mu.Lock()
		defer r.mu.Unlock()
		f := r.runs["brings.openfaas-fn"]
		if f.Inference.SLO.String() != slo || image == "model:1" && f.Inference.MaxReplicas != 6 {
			t.Errorf("%s is deployed as %+v", image, f.Inference)
		}
	}
	for n, slo := range []string{"70ms", "80ms"} {
		image := fmt.Sprintf("model:%d", n+1)
		kubectl(t, fmt.Sprintf(bare, image), "apply", "-f", "-")
		shows(a, image, slo)
		shows(b, image, slo)
		accepted(t, "brings", image)
	}
	if x, y := a.revision("brings.openfaas-fn"), b.revision("brings.openfaas-fn"); x != y {
		t.Errorf("revisions %d and %d", x, y)
	}
	// Who starts without a registry has what was read once.
	c := start(t, false)
	shows(c, "model:2", "80ms")
	kubectl(t, fmt.Sprintf(bare, "model:3"), "apply", "-f", "-")
	eventually(t, func() string { return stillTelling(t, "brings", "Why", "annotation of the image model:3") })
	shows(a, "model:2", "80ms")
	d := start(t, false)
	shows(d, "model:2", "80ms")
	// The image is mended under its name, and nobody touches the object.
	a.mu.Lock()
	a.brings["model:3"] = map[string]string{"com.openfaas.slo.latency": "90ms"}
	a.mu.Unlock()
	shows(a, "model:3", "90ms")
	shows(d, "model:3", "90ms")
	a.must(t, 202, "DELETE", "/system/functions", `{"functionName":"brings"}`)
}

// A function is applied before its image exists. It has its own settings at once, and the
// image's as soon as the image can be read. An image without settings changes nothing then.
func TestAnImageThatComesLater(t *testing.T) {
	hides := func(c *controller) {
		c.hidden["soon:1"] = errors.New("no such image")
		c.hidden["plain:1"] = errors.New("no such image")
	}
	a, b := start(t, true, hides), start(t, false, hides)
	for _, name := range []string{"soon", "plain"} {
		kubectl(t, fmt.Sprintf(`{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function","metadata":{"name":%q,"namespace":"openfaas-fn"},"spec":{"image":"%s:1"}}`, name, name), "apply", "-f", "-")
		a.invoked(t, name, name+":1")
		b.invoked(t, name, name+":1")
	}
	before := a.revision("plain.openfaas-fn")
	a.mu.Lock()
	clear(a.hidden)
	a.brings["soon:1"] = map[string]string{"com.openfaas.slo.latency": "60ms"}
	a.mu.Unlock()
	for _, r := range []*replica{a, b} {
		eventually(t, func() string {
			r.mu.Lock()
			defer r.mu.Unlock()
			if f := r.runs["soon.openfaas-fn"]; f.Inference.SLO.String() != "60ms" {
				return fmt.Sprintf("deployed as %+v", f.Inference)
			}
			return ""
		})
	}
	eventually(t, func() string {
		if f, ok := a.objects.Lookup("plain.openfaas-fn"); !ok || f.Annotations["faas-infer.dev/image-annotations"] != "" {
			return fmt.Sprintf("%v", f.Annotations)
		}
		return ""
	})
	if after := a.revision("plain.openfaas-fn"); after != before {
		t.Errorf("revision %d became %d", before, after)
	}
	kubectl(t, "", "delete", "fn", "--all", "-n", "openfaas-fn")
	b.absent(t, "soon")
}
