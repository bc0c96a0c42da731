package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
)

// status is the HTTP status that an error asks for, 500 if it does not.
func status(err error) int {
	var known web.HTTPError
	if errors.As(err, &known) {
		return known.HTTPStatus()
	}
	return http.StatusInternalServerError
}

func TestDeployRefuses(t *testing.T) {
	try(t, func(r *rig) {
		if _, err := r.Deploy(t.Context(), r.function("f", "absent")); status(err) != 400 {
			t.Errorf("no bundle: %v", err)
		}
		r.models.checkFails = errors.New("not an ONNX file")
		_, err := r.Deploy(t.Context(), r.function("f", "m"))
		if status(err) != 400 || !strings.Contains(err.Error(), "not an ONNX file") {
			t.Errorf("bad model: %v", err)
		}
		r.models.checkFails = latency.Permanent(errors.New("the model takes too long: one run with one request did not end within 6s"))
		if _, err = r.Deploy(t.Context(), r.function("f", "minute")); status(err) != 400 || !strings.Contains(err.Error(), "did not end within 6s") {
			t.Errorf("a minute a run: %v", err)
		}
		if _, ok := r.Describe(full("f")); ok || r.models.tried() > 0 {
			t.Errorf("a refused function is there: %v; it was measured %d times", ok, r.models.tried())
		}
	})
}

func fast(d time.Duration) func(*provider.Function) {
	return func(f *provider.Function) { f.Inference.SLO = d }
}

// A model that was measured before is refused at once if it is too slow.
func TestDeployRefusesAnObjectiveThatCannotBeMet(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		_, err := r.Deploy(t.Context(), r.function("g", "m", fast(time.Millisecond)))
		if status(err) != 400 || !strings.Contains(err.Error(), annotation.SLOLatency) || !strings.Contains(err.Error(), "the fastest") {
			t.Errorf("error %v", err)
		}
		r.answered("f", "m")
	})
}

// One that was not is measured first, and its requests get the reason.
func TestAnObjectiveThatCannotBeMetIsTold(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "slow", fast(100*time.Millisecond))
		held := make(chan error, 1)
		go func() {
			_, err := r.invoke("f", "x")
			held <- err
		}()
		began := time.Now()
		err := <-held
		if status(err) != 503 || !strings.Contains(err.Error(), "no config meets the SLO of 100ms") || time.Since(began) > 2*time.Second {
			t.Errorf("the request that waited got %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := r.invoke("f", "x"); status(err) != 503 || time.Since(began) > 0 {
			t.Errorf("the next got %v after %v", err, time.Since(began))
		}
		// A deployment with an objective that can be met heals it.
		r.deploy("f", "slow", fast(10*time.Second))
		r.until("measured", func() bool { return r.describe("f").Measured })
		r.answered("f", "slow")
	})
}

func TestMeasuringIsTriedAgain(t *testing.T) {
	try(t, func(r *rig) {
		r.models.fail(errors.New("the engine crashed"))
		r.deploy("f", "m")
		r.until("a problem", func() bool { return r.describe("f").Problem != "" })
		if _, err := r.invoke("f", "x"); status(err) != 503 || !strings.Contains(err.Error(), "the engine crashed") {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Minute)
		r.models.mu.Lock()
		tries := r.models.measures
		r.models.mu.Unlock()
		if tries < 4 || tries > 8 {
			t.Errorf("%d measurements in a minute", tries)
		}
		r.models.fail(nil)
		r.until("measured", func() bool { return r.describe("f").Measured })
		r.answered("f", "m")
		if d := r.describe("f"); d.Problem != "" {
			t.Errorf("it serves, and yet: %s", d.Problem)
		}
	})
}

func TestAProfileThatCannotBeKeptServesAllTheSame(t *testing.T) {
	try(t, func(r *rig) {
		r.profiles.fails = errors.New("disk full")
		r.measured("f", "m")
		r.answered("f", "m")
	})
}

// Many functions of one model measure it once, and never two at a time.
func TestMeasuringIsSerial(t *testing.T) {
	try(t, func(r *rig) {
		for i := range 20 {
			r.deploy(fmt.Sprint("f", i), fmt.Sprint("m", i%4))
		}
		began := time.Now()
		for i := range 20 {
			r.until("measured", func() bool { return r.describe(fmt.Sprint("f", i)).Measured })
		}
		if r.models.most != 1 || r.models.measures != 4 {
			t.Errorf("%d measurements, up to %d at once; want 4, one by one", r.models.measures, r.models.most)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("4 measurements of a second took %v", took)
		}
	})
}

// Functions with different objectives share a profile as far as it reaches. A function
// that needs larger batches has the model measured again, and both use that profile.
func TestProfilesAreShared(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("loose", "slow", fast(9*time.Second))
		r.measured("tight", "slow", fast(3*time.Second))
		if r.models.measures != 1 {
			t.Errorf("%d measurements, want 1", r.models.measures)
		}
		r.measured("tight2", "slow2", fast(3*time.Second))
		r.measured("loose2", "slow2", fast(9*time.Second))
		if r.models.measures != 3 {
			t.Errorf("%d measurements, want 3", r.models.measures)
		}
		if checks := r.models.checks; checks != 2 {
			t.Errorf("%d models were checked, want 2: what was measured can be read", checks)
		}
	})
}

func TestLimitsBoundTheConfigs(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m", func(f *provider.Function) {
			f.Inference.Limits = cluster.Resources{CPU: 300, Memory: 1 << 30}
			f.Inference.Policy = "one-to-one"
		})
		r.answered("f", "m")
		if c := r.only().Config; c.CPU != 250 || c.Memory != 1<<30 || c.Batch != 1 {
			t.Errorf("config %+v", c)
		}
		r.measured("g", "m", func(f *provider.Function) { f.Inference.Limits.CPU = 100 })
		r.answered("g", "m")
		if c := r.describe("g").Instances[0].Config; c.CPU != 100 || c.Memory != 256<<20 {
			t.Errorf("config %+v", c)
		}
	})
}

func TestRemoveWhileInstancesRun(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.deploy("starting", "m")
		waits := make(chan error, 1)
		go func() {
			_, err := r.invoke("starting", "x")
			waits <- err
		}()
		time.Sleep(coldStart / 2)
		for _, name := range []string{"f", "starting"} {
			if err := r.Remove(t.Context(), full(name)); err != nil {
				t.Error(err)
			}
		}
		if err := <-waits; status(err) != 503 {
			t.Errorf("a request to a removed function: %v", err)
		}
		r.until("nothing lives", func() bool { return len(r.backend.living()) == 0 })
		if _, ok := r.Describe(full("f")); ok {
			t.Error("it is still described")
		}
		r.deploy("f", "m")
		time.Sleep(10 * time.Millisecond)
		r.answered("f", "m")
	})
}

// A function is removed while its instance waits for the room of another.
func TestRemoveWhileAnInstanceWaitsForRoom(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(250)
		r.measured("f", "m")
		r.answered("f", "m")
		time.Sleep(5 * time.Second)
		r.measured("g", "m")
		go r.invoke("g", "x")
		time.Sleep(stopTime / 2)
		if r.backend.asked() != 1 {
			t.Fatal("the second instance does not wait")
		}
		if err := r.Remove(t.Context(), full("g")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if living := r.backend.living(); len(living) != 0 {
			t.Errorf("%d instances live", len(living))
		}
		r.answered("f", "m")
	})
}

func TestDeployAfterCloseIsRefused(t *testing.T) {
	try(t, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		other := newRig(t)
		other.open()
		if err := other.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Deploy(ctx, other.function("f", "m")); !errors.Is(err, keeper.ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}

func secrets(names ...string) func(*provider.Function) {
	return func(f *provider.Function) { f.Deployment.Secrets = names }
}

func TestSecretsReachTheInstances(t *testing.T) {
	try(t, func(r *rig) {
		_, err := r.Deploy(t.Context(), r.function("f", "m", secrets("token", "absent")))
		if status(err) != 400 || !strings.Contains(err.Error(), `"absent"`) {
			t.Errorf("a secret that is not there: %v", err)
		}
		r.measured("f", "m", secrets("token"))
		r.answered("f", "m")
		for _, in := range r.describe("f").Instances {
			if in.Secrets["token"] != "/secrets/token" {
				t.Errorf("instance %s has the secrets %v", in.ID, in.Secrets)
			}
		}
	})
}

// On one machine, instances that need more than it has are refused; a cluster may grow.
func TestRequestsThatNoNodeCouldHold(t *testing.T) {
	for _, one := range []bool{true, false} {
		tryWith(t, func(o *Options) { o.OneMachine = one }, func(r *rig) {
			f := r.function("f", "m", func(f *provider.Function) {
				f.Deployment.Requests, f.Inference.Requests.Memory = &types.FunctionResources{Memory: "1Ti"}, 1<<40
			})
			_, err := r.Deploy(t.Context(), f)
			if one && (status(err) != 400 || !strings.Contains(err.Error(), `requests.memory is "1Ti": `)) || !one && err != nil {
				t.Errorf("one machine: %v: %v", one, err)
			}
		})
	}
}
