package processes

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// An update keeps the old program serving until the new one's instances are ready, and
// lets it finish its requests.
func TestUpdateLosesNothing(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(_ int, s cluster.InstanceSpec) behaviour {
			return behaviour{AnswerAfter: 300 * time.Millisecond, ReadyAfter: 2 * time.Second}
		})
		r.deploy("f", "old", between(3, 3))
		r.ready("f", 3)
		updated := make(chan struct{})
		go func() {
			defer close(updated)
			for _, image := range []string{"new", "newer", "newest"} {
				time.Sleep(time.Second)
				r.deploy("f", image, between(3, 3))
			}
		}()
		if failed := r.load("f", 3*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests failed during the update", failed)
		}
		<-updated
		r.ready("f", 3)
		for _, in := range r.backend.living() {
			if in.Bundle != "newest" || in.Revision != r.revision {
				t.Errorf("an instance of %s, revision %d, lives on", in.Bundle, in.Revision)
			}
		}
		r.answered("f", "newest")
	})
}

// A deployment that changes nothing that instances are started with restarts none: they answer as the new revision at
// once, and the controller says so.
func TestKeptInstancesAnswerAsTheNewRevision(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a", between(1, 1))
		r.ready("f", 1)
		before := r.only().ID
		for range 2 {
			r.deploy("f", "a", between(1, 1))
			if d := r.describe("f"); d.Revision != r.revision || r.only().ID != before {
				t.Errorf("revision %d answers, want %d: %+v", d.Revision, r.revision, d.Instances)
			}
		}
		r.deploy("f", "b", between(1, 1))
		if d := r.describe("f"); d.Revision != r.revision-1 {
			t.Errorf("revision %d answers before an instance of %d is ready", d.Revision, r.revision)
		}
		r.until("the new revision answers", func() bool { return r.describe("f").Revision == r.revision })
	})
}

// Once a revision has answered, no earlier one does, and each answer says which one gave it. No
// request fails meanwhile, also if there is no room for both.
func TestNoEarlierRevisionAnswersAfterALater(t *testing.T) {
	for what, request := range map[string]int{"room for both": 100, "no room for both": 1000} {
		try(t, func(r *rig) {
			readyAfter := 100 * time.Millisecond
			r.backend.becomes(func(int, cluster.InstanceSpec) behaviour {
				readyAfter += 300 * time.Millisecond // They are ready one after the other.
				return behaviour{ReadyAfter: readyAfter, AnswerAfter: 5 * time.Millisecond}
			})
			edit := func(f *provider.Function) {
				between(4, 4)(f)
				f.Deployment.Requests, f.Inference.Requests.CPU = &types.FunctionResources{}, request
			}
			r.deploy("f", "a", edit)
			r.ready("f", 4)
			go func() {
				for _, image := range []string{"b", "c", "d"} {
					time.Sleep(3 * time.Second)
					r.deploy("f", image, edit)
				}
			}()
			latest := uint64(0)
			for range 2000 {
				d, _ := r.on.Dispatchers.Load("f")
				got, err := d.(provider.Dispatcher).Invoke(r.t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}})
				if err != nil {
					r.t.Fatalf("%s: %v", what, err)
				}
				number, err := strconv.ParseUint(got.Header.Get("X-Infer-Revision"), 10, 64)
				if err != nil || number < latest || string(got.Body) != string(rune('a'+number-1))+":" {
					r.t.Fatalf("%s: revision %q answers %q after %d", what, got.Header.Get("X-Infer-Revision"), got.Body, latest)
				}
				latest = number
				time.Sleep(5 * time.Millisecond)
			}
			if latest != r.revision {
				r.t.Errorf("%s: at the end %d answers, not %d", what, latest, r.revision)
			}
			r.ready("f", 4)
		})
	}
}

// A deployment that changes no instance makes the same ones answer as the new revision.
func TestInstancesThatStayAnswerAsTheNewRevision(t *testing.T) {
	try(t, func(r *rig) {
		for want := range uint64(3) {
			r.deploy("f", "a")
			r.ready("f", 1)
			d, _ := r.on.Dispatchers.Load("f")
			got, err := d.(provider.Dispatcher).Invoke(r.t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}})
			if err != nil || got.Header.Get("X-Infer-Revision") != strconv.FormatUint(want+1, 10) {
				r.t.Errorf("%v, %v", got, err)
			}
		}
		if n := r.backend.asked(); n != 1 {
			r.t.Errorf("%d instances were started", n)
		}
	})
}

// If an update lowers the number of instances, the surplus ones go, too.
func TestUpdateWithOtherBounds(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a", between(4, 4))
		r.ready("f", 4)
		r.deploy("f", "a", between(2, 2))
		r.ready("f", 2)
		if n := r.backend.asked(); n != 4 {
			t.Errorf("%d instances were started, although the program is the same", n)
		}
		r.deploy("f", "b", between(1, 1))
		r.ready("f", 1)
		r.answered("f", "b")
	})
}

func TestADeploymentThatChangesNothingKeepsInstances(t *testing.T) {
	try(t, func(r *rig) {
		if err := os.WriteFile(filepath.Join(r.secrets, "token"), []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
		with := func(f *provider.Function) {
			f.Deployment.Secrets = []string{"token"}
			f.Deployment.EnvVars = map[string]string{"a": "1"}
		}
		r.deploy("f", "a", with)
		r.ready("f", 1)
		first := r.only().ID
		r.deploy("f", "a", with, func(f *provider.Function) {
			f.Deployment.Annotations = &map[string]string{"what": "ever"}
		})
		time.Sleep(time.Minute)
		if id := r.only().ID; id != first {
			t.Errorf("%s became %s", first, id)
		}
		replaced := func(why string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			id := r.only().ID
			if id == first {
				t.Errorf("the instance stays, although %s", why)
			}
			first = id
		}
		if err := os.WriteFile(filepath.Join(r.secrets, "token"), []byte("two"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.deploy("f", "a", with)
		replaced("the secret is another one")
		r.bundles.replace()
		r.deploy("f", "a", with)
		replaced("the bundle is another one")
		for why, edit := range map[string]func(*provider.Function){
			"the environment is another one": func(f *provider.Function) { f.Deployment.EnvVars["a"] = "2" },
			"the process is another one":     func(f *provider.Function) { f.Deployment.EnvProcess = "env" },
			"the limits are other ones":      func(f *provider.Function) { f.Inference.Limits.Memory = 1 << 30 },
			"the root is read-only":          func(f *provider.Function) { f.Deployment.ReadOnlyRootFilesystem = true },
		} {
			r.deploy("f", "a", with, edit)
			replaced(why)
		}
	})
}

// The provider goes back to the earlier revision if it could not store the later one.
func TestGoingBackToAnEarlierRevision(t *testing.T) {
	try(t, func(r *rig) {
		before := r.function("f", "old")
		deploy := func(f *provider.Function) {
			t.Helper()
			d, err := r.Deploy(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			r.on.Dispatchers.Store("f", d)
		}
		deploy(before)
		r.ready("f", 1)
		first := r.only().ID
		deploy(r.function("f", "new"))
		deploy(before)
		time.Sleep(5 * time.Second)
		if id := r.only().ID; id != first {
			t.Error("the instance that was right all the time was replaced")
		}
		deploy(r.function("f", "new"))
		time.Sleep(5 * time.Second)
		r.answered("f", "new")
		deploy(before)
		r.until("old again", func() bool {
			got, err := r.invoke("f", "x")
			return err == nil && got == "old:x"
		})
	})
}

func TestWhatInstancesAreStartedWith(t *testing.T) {
	try(t, func(r *rig) {
		if err := os.WriteFile(filepath.Join(r.secrets, "token"), []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.deploy("f", "private", func(f *provider.Function) {
			f.Deployment.Secrets = []string{"token"}
			f.Deployment.EnvVars = map[string]string{"greeting": "hi", "fprocess": "loses", "FAAS_INFER_NETWORK": "host"}
			f.Deployment.EnvProcess = "cat"
			f.Deployment.ReadOnlyRootFilesystem = true
			f.Inference.Requests = cluster.Resources{CPU: 100, Memory: 1 << 20}
			f.Inference.Limits = cluster.Resources{CPU: 200, Memory: 2 << 20}
		})
		r.ready("f", 1)
		in := r.only()
		for name, want := range map[string]string{"greeting": "hi", "fprocess": "cat", "mode": "http", "FAAS_INFER_NETWORK": "private"} {
			if got := in.Env[name]; got != want {
				t.Errorf("$%s is %q, want %q", name, got, want)
			}
		}
		if in.Kind != cluster.Process || !in.ReadOnlyRoot || in.Limits.Memory != 2<<20 || in.Config.CPU != 100 || in.Config.Batch != 1 ||
			in.Secrets["token"] != filepath.Join(r.secrets, "token") || in.Bundle != "private" || in.Function != full("f") {
			t.Errorf("%+v", in.InstanceSpec)
		}
	})
}

func TestRefusedDeployments(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a")
		r.ready("f", 1)
		for image, edit := range map[string]func(*provider.Function){
			"absent": func(*provider.Function) {},
			"a":      func(f *provider.Function) { f.Deployment.Secrets = []string{"nowhere"} },
		} {
			_, err := r.Deploy(t.Context(), r.function("f", image, edit))
			if known, ok := err.(web.HTTPError); !ok || known.HTTPStatus() != 400 || !strings.Contains(err.Error(), "there is no") {
				t.Errorf("%s: %v", image, err)
			}
			if _, err := r.Deploy(t.Context(), r.function("g", image, edit)); err == nil {
				t.Error("a bad deployment of a new function is taken")
			}
		}
		r.invalid = errors.New("fprocess=...: it means nothing")
		invalid := func(f *provider.Function) { f.Deployment.EnvProcess = "invalid" }
		large := func(f *provider.Function) {
			f.Deployment.Requests, f.Inference.Requests.CPU = &types.FunctionResources{CPU: "64"}, 64000
		}
		for want, edit := range map[string]func(*provider.Function){"fprocess=": invalid, `requests.cpu is "64": `: large} {
			_, err := r.Deploy(t.Context(), r.function("g", "a", edit))
			if known, ok := err.(web.HTTPError); !ok || known.HTTPStatus() != 400 || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		// Neither refuses a function that was accepted before: the machine may have been another one.
		for name, edit := range map[string]func(*provider.Function){"invalid": invalid, "large": large} {
			f := r.function(name, "a", edit)
			f.Restored = true
			if _, err := r.Deploy(t.Context(), f); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		gpu := func(f *provider.Function) { f.Inference.Limits.GPU = 100 }
		if _, err := r.Deploy(t.Context(), r.function("g", "a", gpu)); err == nil || !strings.Contains(err.Error(), "limits.nvidia.com/gpu is 1, but this machine has 0") {
			t.Errorf("a GPU is asked for: %v", err)
		}
		if _, ok := r.Status(full("g")); ok {
			t.Error("a function that was refused has a status")
		}
		time.Sleep(time.Second)
		r.answered("f", "a")
	})
}

func TestRemove(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{AnswerAfter: 5 * time.Second} })
		r.deploy("f", "a", between(2, 2))
		r.ready("f", 2)
		answered := make(chan error)
		go func() {
			_, err := r.invoke("f", "x")
			answered <- err
		}()
		time.Sleep(time.Second)
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Status(full("f")); ok {
			t.Error("a removed function has a status")
		}
		if _, err := r.invoke("f", "x"); err == nil {
			t.Error("a removed function answers")
		}
		if err := <-answered; err != nil {
			t.Errorf("a request in flight: %v", err)
		}
		r.until("none lives", func() bool { return len(r.backend.living()) == 0 })
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Errorf("to remove an absent function: %v", err)
		}
		r.deploy("f", "b")
		r.answered("f", "b")
	})
}

// A function is deployed again while its earlier instances are still stopping.
func TestRemoveAndDeployAtOnce(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a")
		r.ready("f", 1)
		for range 5 {
			if err := r.Remove(t.Context(), full("f")); err != nil {
				t.Fatal(err)
			}
			r.deploy("f", "b")
			r.answered("f", "b")
		}
		r.ready("f", 1)
	})
}

// The function's own timeouts say how long a request may continue on an instance that is
// being replaced.
func TestDrainGrace(t *testing.T) {
	for _, c := range []struct {
		variable, value string
		want            time.Duration
	}{{"exec_timeout", "5s", 30 * time.Second}, {"exec_timeout", "5m", 5 * time.Minute}, {"write_timeout", "90s", 90 * time.Second},
		{"exec_timeout", "soon", 30 * time.Second}, {"write_timeout", "100h", time.Hour}} {
		if got := drainGrace(map[string]string{c.variable: c.value}, 30*time.Second); got != c.want {
			t.Errorf("%s=%s: %v, want %v", c.variable, c.value, got, c.want)
		}
	}
}

// Close ends a long drain.
func TestCloseDoesNotWaitForDrains(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{AnswerAfter: time.Hour} })
		r.deploy("f", "a", func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"exec_timeout": "1h"} })
		r.ready("f", 1)
		go r.invoke("f", "x")
		time.Sleep(time.Second)
		r.deploy("f", "b")
		time.Sleep(10 * time.Minute)
		if n := len(r.backend.living()); n != 2 {
			t.Errorf("%d instances live, want the old one with its request, and the new one", n)
		}
	})
}

// An ordinary function gets whole GPUs on which nothing else is, each of its instances others, as far
// as there are any.
func TestWholeGPUs(t *testing.T) {
	try(t, func(r *rig) {
		n := &r.backend.Machines[0]
		for _, uuid := range []string{"a", "b", "c", "d", "e"} {
			d := cluster.DeviceRoom{UUID: uuid, Total: cluster.Resources{GPU: 100, GPUMemory: 40 << 30}}
			switch uuid {
			case "b":
				d.Others = cluster.Resources{GPU: 10}
			case "d":
				d.Lost = "XID 79"
			}
			n.Devices = append(n.Devices, d)
		}
		n.Total.GPU, n.Total.GPUMemory = 400, 160<<30
		gpu := func(count int) func(f *provider.Function) {
			return func(f *provider.Function) { between(3, 3)(f); f.Inference.Limits.GPU = 100 * count }
		}
		if _, err := r.Deploy(t.Context(), r.function("more", "a", gpu(5))); err == nil || !strings.Contains(err.Error(), "is 5, but this machine has 4") {
			t.Errorf("%v", err)
		}
		amd := func(f *provider.Function) { gpu(1)(f); f.Deployment.Limits = &types.FunctionResources{AmdGPU: "1"} }
		if _, err := r.Deploy(t.Context(), r.function("amd", "a", amd)); err == nil || !strings.Contains(err.Error(), "AMD") {
			t.Errorf("%v", err)
		}
		r.deploy("f", "a", gpu(1))
		r.until("started", func() bool { return len(r.backend.living()) == 3 })
		var got []string
		for _, in := range r.backend.living() {
			got = append(got, in.Devices...)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"a", "c", "e"}) {
			t.Errorf("they have the GPUs %q", got)
		}
		r.deploy("g", "a", gpu(1))
		r.until("short of room", func() bool {
			return strings.Contains(fmt.Sprint(r.describe("g")), "limits.nvidia.com/gpu 1")
		})
	})
}
