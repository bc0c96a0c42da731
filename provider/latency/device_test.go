package latency_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// devices are GPUs on which a batch of b takes (1 ms + b/10 ms)·100/g at most shares.
type devices struct {
	names  []string
	unable string
	asked  []string
	// fails is the name of the GPU that cannot be measured.
	fails string
	// unusable is the reason why the GPU of a name cannot be used, known without trying.
	unusable map[string]string
	// short: the times reach no batch above 1.
	short bool
}

func (d *devices) Devices() []string                { return d.names }
func (d *devices) Suits(string, string) bool        { return true }
func (d *devices) Unable(string, bool) string       { return d.unable }
func (d *devices) Unusable(_, device string) string { return d.unusable[device] }
func (d *devices) OnDevice(_ context.Context, _, device string, maxBatch int, _ time.Duration) (*profiler.Profile, error) {
	d.asked = append(d.asked, device)
	if device == d.fails {
		return nil, errors.New("it fell off the bus")
	}
	if d.short {
		maxBatch = 1
	}
	p := &profiler.Profile{Model: "m", Engine: "engine cuda", Machine: device, Memory: 700 << 20}
	for _, g := range []int{20, 100} {
		for b := 1; b <= maxBatch; b *= 2 {
			us := (1000 + 100*float64(b)) * 100 / float64(g)
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, GPU: g, Median: us, P95: us, CPU: 50, Runs: 9, DeviceMemory: 300 << 20})
		}
	}
	return p, nil
}

const a100, t4 = "A100, driver 580", "T4, driver 580"

func deviceRig(names ...string) (*rig, *devices) {
	r, d := newRig(false), &devices{names: names}
	r.Devices = d
	return r, d
}

// count counts the candidates on the CPU and on a GPU, and checks what they hold.
func count(t *testing.T, all []capacity.Candidate) (cpu, gpu int) {
	t.Helper()
	for _, c := range all {
		if c.Config.GPU == 0 {
			cpu++
			continue
		}
		gpu++
		if c.Config.GPUMemory != 300<<20 || c.Config.Memory != 1400<<20 || c.Config.GPU < 20 || c.Config.GPU > 100 || c.Config.CPU != 250 {
			t.Errorf("%+v", c.Config)
		}
	}
	return cpu, gpu
}

// A model is served with the CPU's times at once, and then with those on a GPU, too. Both are
// found once. Without a GPU no config has a share.
func TestBothDevices(t *testing.T) { synctest.Test(t, bothDevices) }

func bothDevices(t *testing.T) {
	f := function(200*time.Millisecond, 4)
	r, d := deviceRig(a100)
	_, first, err := r.Profile(t.Context(), f, "m", false)
	if err != nil || !first.Provisional || len(d.asked) != 0 {
		t.Fatalf("%+v, %v, %v", first, d.asked, err)
	}
	_, full, err := r.Refine(t.Context(), f, "m")
	if err != nil || full.Provisional || len(d.asked) != 1 {
		t.Fatalf("%+v, %v, %v", full, d.asked, err)
	}
	cpu, gpu := count(t, r.Rules.Promised(f, full))
	if want := 9 * 3; cpu == 0 || gpu != want { // 20, 30, … 100 %, batches of 1, 2 and 4
		t.Errorf("%d configs on the CPU, %d on a GPU", cpu, gpu)
	}
	_, again, err := r.Profile(t.Context(), f, "m", false)
	if err != nil || again.Provisional || len(d.asked) != 1 {
		t.Errorf("%+v, %v, %v", again, d.asked, err)
	}
	if c, g := count(t, r.Promised(f, "m")); c != cpu || g != gpu {
		t.Errorf("promised %d and %d", c, g)
	}
	d.names = nil
	if c, g := count(t, r.Promised(f, "m")); c != cpu || g != 0 {
		t.Errorf("without a GPU: %d and %d", c, g)
	}
}

// The times on a GPU come before the full ones on the CPU, at first and when a sketch serves.
func TestGPUFirst(t *testing.T) { synctest.Test(t, gpuFirst) }

func gpuFirst(t *testing.T) {
	for name, test := range map[string]struct {
		sketch float64
		first  string
	}{
		"a sketch that is too slow": {1000, "[sketch]"},
		"a sketch that serves":      {1, "[sketch]"},
	} {
		f := function(200*time.Millisecond, 4)
		r, d := deviceRig(a100)
		r.Predict, r.models.sketch = true, test.sketch
		_, p, err := r.Profile(t.Context(), f, "m", false)
		if err != nil || !p.Provisional || r.models.did() != test.first {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		if test.sketch == 1 {
			_, p, err = r.Refine(t.Context(), f, "m")
		}
		if err != nil || !p.Provisional || len(d.asked) != 1 || len(p.DeviceShares()) == 0 || strings.Contains(r.models.did(), "predict") {
			t.Errorf("%s, with the GPU: %+v, %v", name, p, err)
		}
		if _, p, err = r.Refine(t.Context(), f, "m"); err != nil || p.Provisional || len(d.asked) != 1 || len(p.DeviceShares()) == 0 || r.models.did() != "[predict]" {
			t.Errorf("%s, full: %+v, %v", name, p, err)
		}
	}
}

// A GPU whose times cannot be found, or only for small batches, does not keep a function from its full
// times on the CPU.
func TestGPUFirstWithoutEnd(t *testing.T) { synctest.Test(t, gpuFirstWithoutEnd) }

func gpuFirstWithoutEnd(t *testing.T) {
	for name, spoil := range map[string]func(d *devices){
		"one of two fails": func(d *devices) { d.names, d.fails = []string{a100, t4}, t4 },
		"small batches":    func(d *devices) { d.short = true },
	} {
		f := function(200*time.Millisecond, 4)
		r, d := deviceRig(a100)
		r.Predict, r.models.sketch = true, 1
		spoil(d)
		_, p, err := r.Profile(t.Context(), f, "m", false)
		for n := 0; n < 3 && err == nil && p.Provisional; n++ {
			_, p, err = r.Refine(t.Context(), f, "m")
		}
		if err != nil || p.Provisional || len(p.DeviceShares()) == 0 || !strings.Contains(r.models.did(), "predict") {
			t.Errorf("%s: %+v, %v after asking for %q", name, p, err, d.asked)
		}
	}
}

// com.openfaas.infer.device limits a function to one of them.
func TestDeviceAnnotation(t *testing.T) { synctest.Test(t, deviceAnnotation) }

func deviceAnnotation(t *testing.T) {
	for device, wantGPU := range map[string]bool{annotation.DeviceCPU: false, annotation.DeviceCUDA: true} {
		f := function(200*time.Millisecond, 4)
		f.Inference.Device = device
		r, d := deviceRig(a100)
		if err := r.Check(t.Context(), f, "m"); err != nil {
			t.Fatal(err)
		}
		_, p, err := r.Profile(t.Context(), f, "m", false)
		if err != nil || p.Provisional {
			t.Fatalf("%s: %+v, %v", device, p, err)
		}
		cpu, gpu := count(t, r.Rules.Promised(f, p))
		if (gpu > 0) != wantGPU || (cpu > 0) == wantGPU || (len(d.asked) > 0) != wantGPU || strings.Contains(r.models.did(), "measure") == wantGPU {
			t.Errorf("%s: %d configs on the CPU, %d on a GPU", device, cpu, gpu)
		}
	}
}

// A function that may only run on a GPU is refused where that is impossible. Others are not.
func TestDeviceRefused(t *testing.T) { synctest.Test(t, deviceRefused) }

func deviceRefused(t *testing.T) {
	for why, change := range map[string]func(*rig, *devices){
		"this provider has no GPUs": func(r *rig, _ *devices) { r.Devices = nil },
		"no node has a GPU":         func(_ *rig, d *devices) { d.names = nil },
		"Python uses it by itself":  func(_ *rig, d *devices) { d.unable = "Python uses it by itself" },
		"the library is missing; on " + t4 + ": too small": func(_ *rig, d *devices) {
			d.names, d.unusable = []string{a100, t4}, map[string]string{a100: "the library is missing", t4: "too small"}
		},
	} {
		f := function(200*time.Millisecond, 4)
		r, d := deviceRig(a100)
		change(r, d)
		if err := r.Check(t.Context(), f, "m"); err != nil {
			t.Errorf("auto: %v", err)
		}
		if _, p, err := r.Profile(t.Context(), f, "m", false); err != nil || p.Provisional && d.unusable == nil || len(d.asked) > 0 {
			t.Errorf("auto: %+v, %v", p, err)
		}
		f.Inference.Device = annotation.DeviceCUDA
		var refused *annotation.Error
		if err := r.Check(t.Context(), f, "m"); !errors.As(err, &refused) || refused.Key != annotation.InferDevice || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
		// After a restart the driver or the node may be late: the function waits, and says for what.
		f.Restored = true
		if r.Devices == nil || d.unable != "" {
			continue
		}
		r.put(f, profile(4, time.Hour, 1, false))
		if err := r.Check(t.Context(), f, "m"); err != nil {
			t.Errorf("restored: %v", err)
		}
		if _, p, err := r.Profile(t.Context(), f, "m", false); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("restored: %+v, %v", p, err)
		}
	}
}

// A model that is too slow on the CPU waits for the GPU's times, and is not refused before.
func TestOnlyTheGPUIsFastEnough(t *testing.T) { synctest.Test(t, onlyTheGPUIsFastEnough) }

func onlyTheGPUIsFastEnough(t *testing.T) {
	f := function(9*time.Millisecond, 4)
	r, d := deviceRig(a100)
	if _, p, err := r.Profile(t.Context(), f, "m", false); err != nil || p.Provisional || len(d.asked) != 1 || r.Rules.Hopeless(f, r.Rules.Promised(f, p)) != nil {
		t.Errorf("%+v, %v", p, err)
	}
	r.put(f, profile(4, time.Hour, 100, false))
	if err := r.Check(t.Context(), f, "m"); err != nil {
		t.Error(err)
	}
	r.store.kept = map[string]*profiler.Profile{}
	r.put(f, profile(4, time.Hour, 100, false))
	if err := r.Check(t.Context(), f, "m"); err != nil {
		t.Errorf("before the GPU's times are known: %v", err)
	}
}

// A GPU that cannot be measured is left out; of several kinds the slower time counts.
func TestSeveralDevices(t *testing.T) { synctest.Test(t, severalDevices) }

func severalDevices(t *testing.T) {
	f := function(200*time.Millisecond, 4)
	r, d := deviceRig(a100, t4)
	d.fails = t4
	_, p, err := r.Refine(t.Context(), f, "m")
	if err != nil || p.Provisional || len(d.asked) != 2 || len(p.DeviceShares()) == 0 || p.LeftOut != "on "+t4+": it fell off the bus" {
		t.Fatalf("%+v, %v, %v", p, d.asked, err)
	}
	d.fails = ""
	if _, p, err = r.Refine(t.Context(), f, "m"); err != nil || p.LeftOut != "" {
		t.Errorf("once it can be measured: %+v, %v", p, err)
	}
	// What is known before is not tried, and does not spoil the CPU's profile.
	r, d = deviceRig(t4)
	d.unusable = map[string]string{t4: "the library is missing"}
	cpu := profile(4, time.Hour, 1, false)
	r.put(f, cpu)
	if _, p, err = r.Refine(t.Context(), f, "m"); err != nil || len(d.asked) > 0 || p.LeftOut != "on "+t4+": the library is missing" || cpu.LeftOut != "" {
		t.Errorf("%+v, %v, %v", p, d.asked, err)
	}
	f.Inference.Device = annotation.DeviceCUDA
	r, d = deviceRig(t4)
	d.fails = t4
	if _, _, err := r.Profile(t.Context(), f, "m", false); err == nil || !strings.Contains(err.Error(), "fell off") || !strings.Contains(err.Error(), t4) {
		t.Errorf("%v", err)
	}
}

// A replica that follows serves with the stored times, and stores none.
func TestFollowerAndDevices(t *testing.T) { synctest.Test(t, followerAndDevices) }

func followerAndDevices(t *testing.T) {
	f := function(200*time.Millisecond, 4)
	r, d := deviceRig(a100)
	r.put(f, profile(4, time.Hour, 1, false))
	r.leading = false
	if _, p, err := r.Profile(t.Context(), f, "m", false); err != nil || p.Provisional || len(p.DeviceShares()) > 0 || len(d.asked) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	f.Inference.Device = annotation.DeviceCUDA
	if _, _, err := r.Profile(t.Context(), f, "m", false); err == nil || len(d.asked) > 0 {
		t.Errorf("%v", err)
	}
	if _, p, err := r.Profile(t.Context(), f, "m", true); err != nil || len(p.DeviceShares()) == 0 || len(r.store.kept) != 1 {
		t.Errorf("alone: %+v, %v", p, err)
	}
}

// A replica that does not lead begins no trial, however long it waits. One that stops leading while a trial waits leaves
// the rest to the leader without a complaint.
func TestFollowersTryNothing(t *testing.T) {
	r, d := deviceRig(a100, t4)
	f := function(time.Second, 4)
	f.Inference.Device = annotation.DeviceCUDA
	var log bytes.Buffer
	r.Logger = zerolog.New(&log)
	tried := 0
	by := r.By(func(ctx context.Context, device string) (*profiler.Profile, error) {
		tried++
		if device == t4 {
			return nil, latency.ErrFollowing
		}
		return d.OnDevice(ctx, "", device, 4, 0)
	})
	r.leading = false
	if _, _, err := by.Profile(t.Context(), f, "m", true); !errors.Is(err, latency.ErrFollowing) || tried > 0 {
		t.Errorf("%v after %d trials", err, tried)
	}
	r.leading = true
	_, p, err := by.Profile(t.Context(), f, "m", true)
	if err != nil || p.LeftOut != "" || tried != 2 {
		t.Errorf("%+v, %v after %d trials", p, err, tried)
	}
	if strings.Contains(log.String(), `"warn"`) {
		t.Error(log.String())
	}
}
