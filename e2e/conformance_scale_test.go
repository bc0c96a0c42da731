package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
)

// between returns a function with bounds on its replicas.
func (w *way) between(name, least, most string) types.FunctionDeployment {
	f := ordinary(w.own(name), "sha512sum")
	labels := map[string]string{}
	if least != "" {
		labels["com.openfaas.scale.min"] = least
	}
	if most != "" {
		labels["com.openfaas.scale.max"] = most
	}
	f.Labels = &labels
	return f
}

// The minimum of replicas exists from the deployment on.
func (w *way) keepsMinimum(t *testing.T) {
	f := w.between("least-two", "2", "")
	w.deployed(t, f)
	if got := w.shown(t, f.Service, defaultNamespace); got.Replicas != 2 {
		t.Errorf("%d replicas right after the deployment", got.Replicas)
	}
	w.awaitReplicas(t, patience, f.Service, 2)
	// Without a label it is one.
	f = w.between("least-one", "", "")
	w.deployed(t, f)
	if got := w.shown(t, f.Service, defaultNamespace); got.Replicas != 1 {
		t.Errorf("%d replicas without a minimum", got.Replicas)
	}
	w.awaitReplicas(t, patience, f.Service, 1)
}

// With equal bounds, load changes nothing.
func (w *way) scalesNotWhereDisabled(t *testing.T) {
	f := w.between("fixed", "2", "2")
	w.deployed(t, f)
	w.awaitReplicas(t, patience, f.Service, 2)
	end := w.underLoad(t, f.Service, 20)
	for stop := time.Now().Add(8 * time.Second); time.Now().Before(stop); time.Sleep(200 * time.Millisecond) {
		// On a busy machine one may not answer for a moment.
		if got := w.shown(t, f.Service, defaultNamespace); got.Replicas != 2 || got.AvailableReplicas > 2 {
			t.Fatalf("%d of %d replicas under load", got.AvailableReplicas, got.Replicas)
		}
	}
	end().wantAll(t, http.StatusOK)
	w.awaitReplicas(t, patience, f.Service, 2)
}

// Load above the target of one replica adds another, and its end removes it.
func (w *way) scalesWithLoad(t *testing.T) {
	f := w.between("elastic", "1", "2")
	w.deployed(t, f)
	w.awaitReplicas(t, patience, f.Service, 1)
	end := w.underLoad(t, f.Service, 10)
	began := time.Now()
	w.awaitReplicas(t, patience, f.Service, 2)
	up := time.Since(began)
	r := end()
	began = time.Now()
	w.awaitReplicas(t, patience, f.Service, 1)
	t.Logf("two replicas after %v of load, one again %v after its end; %v", up, time.Since(began), r)
	r.wantAll(t, http.StatusOK)
}

// The scale route sets the number of replicas. At zero, the next request starts one. The
// gateway's own route changes zero to one.
func (w *way) scalesByRoute(t *testing.T) {
	f := w.between("by-route", "", "4")
	w.deployed(t, f)
	scale := func(n uint64) {
		t.Helper()
		if err := w.faas.ScaleFunction(t.Context(), f.Service, defaultNamespace, n); err != nil {
			t.Fatal(err)
		}
	}
	scale(3)
	if got := w.shown(t, f.Service, defaultNamespace); got.Replicas != 3 {
		t.Errorf("%d replicas right after it was scaled to 3", got.Replicas)
	}
	w.awaitReplicas(t, patience, f.Service, 3)
	scale(0)
	if w.throughGateway() {
		w.awaitReplicas(t, patience, f.Service, 1)
		return
	}
	if got := w.shown(t, f.Service, defaultNamespace); got.Replicas != 0 {
		t.Errorf("%d replicas right after it was scaled to 0", got.Replicas)
	}
	w.awaitReplicas(t, patience, f.Service, 0)
	w.await(t, patience, "the processes to go", func() bool { return len(w.instancesOf(f.Service)) == 0 })
	for range 3 {
		if got := w.answers(t, f.Service, nil); !strings.HasPrefix(got, "cf83e1357eefb8bd") {
			t.Errorf("from zero it answered %q", got)
		}
	}
	w.await(t, patience, "replicas after a request", func() bool {
		got := w.shown(t, f.Service, defaultNamespace)
		return got.Replicas > 0 && got.AvailableReplicas > 0
	})
	for name, body := range map[string]string{"above the maximum": `{"replicas": 5}`, "negative": `{"replicas": -1}`, "none": `{}`, "no number": `{"replicas": "two"}`} {
		if a := w.system(t, http.MethodPost, "/system/scale-function/"+f.Service, []byte(body)); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if err := w.faas.ScaleFunction(t.Context(), "absent", defaultNamespace, 1); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a function that is not there was scaled: %v", err)
	}
}

// A function that may scale to zero does so without requests, and starts again with the
// next one.
func (w *way) goesToZero(t *testing.T) {
	f := w.between("idle", "", "")
	(*f.Labels)["com.openfaas.scale.zero"] = "true"
	f.Annotations = &map[string]string{"com.openfaas.scale.zero-duration": "2s"}
	w.deployed(t, f)
	for range 2 {
		w.answers(t, f.Service, []byte("x")) // So there is one.
		w.awaitReplicas(t, patience, f.Service, 0)
		w.await(t, patience, "the processes to go", func() bool { return len(w.instancesOf(f.Service)) == 0 })
	}
	w.answers(t, f.Service, []byte("x"))
}

// An update loses no request: the old or the new process answers each.
func (w *way) updatesUnderLoad(t *testing.T) {
	f := w.between("renewed", "2", "2")
	f.EnvProcess = "env"
	f.EnvVars = map[string]string{"version": "1"}
	w.deployed(t, f)
	w.awaitReplicas(t, patience, f.Service, 2)
	end := w.underLoad(t, f.Service, 15)
	for _, version := range []string{"2", "3"} {
		f.EnvVars = map[string]string{"version": version}
		if status, err := w.faas.Update(t.Context(), f); err != nil {
			t.Fatalf("%d, %v", status, err)
		}
		w.await(t, patience, "version "+version, func() bool { return variables(w.answers(t, f.Service, nil))["version"] == version })
		w.awaitReplicas(t, patience, f.Service, 2)
	}
	r := end()
	t.Logf("%v", r)
	r.wantAll(t, http.StatusOK)
}
