package profiler

import (
	"slices"
	"testing"
	"time"
)

// on is a measured point on a share of a GPU. It takes median µs, of which the CPU works cpu.
func on(gpu, batch int, median, cpu float64) Measurement {
	return Measurement{Batch: batch, Threads: 1, GPU: gpu, Median: median, P95: median, CPU: cpu, Runs: 9, DeviceMemory: int64(batch) << 20}
}

// exact has its times without a margin above 0, which counts as the default one.
func exact(m Measurement) Measurement {
	m.Margin = 1e-12
	return m
}

func devices(ms ...Measurement) *Profile {
	for i := range ms {
		ms[i] = exact(ms[i])
	}
	return &Profile{Model: "m", Engine: "e", Machine: "x", Memory: 900 << 20, Measurements: ms}
}

func near(got, want time.Duration) bool { return (got - want).Abs() <= 2*time.Nanosecond }

// The arithmetic of onDevice's comment.
func TestTimesBetweenShares(t *testing.T) {
	p := devices(on(20, 1, 8000, 0), on(40, 1, 5000, 0), on(40, 8, 9000, 0))
	for _, c := range []struct {
		batch, gpu int
		want       time.Duration
	}{
		{1, 20, 8000 * us}, {1, 30, 6000 * us}, {1, 40, 5000 * us}, {1, 100, 5000 * us},
		{1, 19, 0}, {1, 0, 0},
		{8, 40, 9000 * us}, {8, 39, 0}, // Batch 8 was measured on 40 % only.
		{4, 40, (5000 + 3*4000/7) * us},
	} {
		got, ok := p.ExecTime(c.batch, Share{CPU: 1000, GPU: c.gpu})
		if ok != (c.want > 0) || ok && (got-c.want).Abs() > us {
			t.Errorf("b = %d on %d %%: %v, %v; want %v", c.batch, c.gpu, got, ok, c.want)
		}
	}
	if _, ok := p.ExecTime(1, Share{CPU: 1000}); ok {
		t.Error("a profile on a GPU has a time on the CPU")
	}
	if got := p.Threads(); got != nil {
		t.Errorf("threads %v", got)
	}
}

// A disturbed measurement on a large share does not make a smaller one look faster.
func TestTimeNeverRisesWithTheShare(t *testing.T) {
	p := devices(on(10, 1, 9000, 0), on(20, 1, 3000, 0), on(50, 1, 4000, 0), on(100, 1, 2000, 0))
	last := time.Duration(0)
	for g := 100; g >= 10; g-- {
		got, ok := p.ExecTime(1, Share{CPU: 1000, GPU: g})
		if !ok || got < last {
			t.Fatalf("%v on %d %% after %v, %v", got, g, last, ok)
		}
		last = got
	}
	if got, _ := p.ExecTime(1, Share{CPU: 1000, GPU: 20}); !near(got, 4000*us) {
		t.Errorf("on 20 %%: %v, want the 4 ms of 50 %%", got)
	}
}

// The arithmetic of quotaFor's comment. A quota below it pauses the instance.
func TestQuotaBesideAShare(t *testing.T) {
	p := devices(on(50, 1, 4000, 300), on(50, 8, 9000, 1200))
	for _, c := range []struct {
		batch, cpu int
		want       time.Duration
	}{
		{1, 250, 4000 * us}, // 4 · 0.3 ≤ 2.5 ms
		{8, 500, 9000 * us}, // 3 · 1.2 > 2.5 ms, ≤ 5 ms
		{8, 250, 16500 * us}, {8, 1000, 9000 * us}, {8, 100, 27000 * us},
	} {
		if got, ok := p.ExecTime(c.batch, Share{CPU: c.cpu, GPU: 50}); !ok || !near(got, c.want) {
			t.Errorf("b = %d at %dm: %v, want %v", c.batch, c.cpu, got, c.want)
		}
	}
	if got, ok := p.MeanTime(8, Share{CPU: 100, GPU: 50}); !ok || !near(got, 12000*us) {
		t.Errorf("mean at 100m: %v, want 12 ms", got)
	}
}

// A larger batch never counts as faster than a smaller one, on any share.
func TestDeviceTableRises(t *testing.T) {
	// Batches of one use the most CPU time per second.
	p := devices(on(50, 1, 500, 200), on(50, 8, 4000, 300), on(50, 32, 16000, 500))
	for cpu := 50; cpu <= 1000; cpu += 50 {
		if table := p.Table(32, Share{CPU: cpu, GPU: 50}); len(table) != 32 || !slices.IsSorted(table) {
			t.Errorf("at %dm: %v", cpu, table)
		}
	}
}

func TestDeviceCandidates(t *testing.T) {
	p := devices(on(40, 1, 5000, 300), on(40, 4, 9000, 1200), on(100, 1, 3000, 300), on(100, 4, 5000, 1200))
	got := p.DeviceCandidates(Bounds{MaxBatch: 4, Memory: 7})
	if len(got) != 7*3 { // 40, 50, …, 100 %, batches of 1, 2 and 4
		t.Fatalf("%d: %v", len(got), got)
	}
	for _, c := range got {
		want, _ := p.ExecTime(c.Batch, Share{CPU: 1000, GPU: c.GPU})
		if c.Exec != want || c.Memory != 7 || c.GPUMemory < int64(c.Batch)<<20 || c.CPU > 500 {
			t.Errorf("%+v", c)
		}
	}
	if got[2].GPUMemory != 4<<20 || got[0].GPU != 40 || got[20].GPU != 100 {
		t.Errorf("%+v", got)
	}
	for _, c := range p.DeviceCandidates(Bounds{LeastCPU: 600, MostCPU: 700, MaxBatch: 1}) {
		if c.CPU != 600 {
			t.Errorf("%+v is not between the request and the limit", c)
		}
	}
	if got := profile(point(1, 1, 1000)).DeviceCandidates(Bounds{MaxBatch: 4}); got != nil {
		t.Errorf("without a GPU: %v", got)
	}
}

// The memory of a batch between two measured ones is that of the larger.
func TestDeviceMemory(t *testing.T) {
	p := devices(on(50, 1, 1, 0), on(50, 4, 1, 0), on(50, 16, 1, 0), on(100, 4, 1, 0))
	p.Measurements[3].DeviceMemory++
	for batch, want := range map[int]int64{1: 1, 2: 5, 4: 5, 5: 16, 16: 16, 99: 16} {
		if got := p.DeviceMemory(batch); got != want<<20 {
			t.Errorf("batches of %d: %d, want %d MiB", batch, got, want)
		}
	}
}

// A profile with both has the CPU's times on the CPU and the slower GPU's on a GPU.
func TestWith(t *testing.T) {
	cpu := profile(point(1, 1, 1000))
	both := cpu.With(devices(on(50, 1, 500, 0))).With(devices(on(50, 1, 700, 0), on(100, 1, 400, 0)))
	if err := both.Validate(); err != nil {
		t.Fatal(err)
	}
	onCPU, _ := both.ExecTime(1, Share{CPU: 1000})
	want, _ := cpu.ExecTime(1, Share{CPU: 1000})
	onGPU, _ := both.ExecTime(1, Share{CPU: 1000, GPU: 50})
	if onCPU != want || !near(onGPU, 700*us) || both.DeviceHost != 900<<20 || both.Memory != cpu.Memory || len(cpu.Measurements) != 1 {
		t.Errorf("%v on the CPU, %v on the GPU, %+v", onCPU, onGPU, both)
	}
	alone := (*Profile)(nil).With(devices(on(50, 1, 500, 0)))
	if _, ok := alone.ExecTime(1, Share{CPU: 1000}); ok || alone.MaxBatch() != 1 || alone.DeviceHost != 900<<20 {
		t.Errorf("%+v", alone)
	}
}

func TestValidateDevice(t *testing.T) {
	for _, m := range []Measurement{
		{Batch: 1, Threads: 1, GPU: 101, Median: 1, Runs: 1}, {Batch: 1, Threads: 1, GPU: -1, Median: 1, Runs: 1},
		{Batch: 1, Threads: 2, GPU: 50, Median: 1, Runs: 1}, {Batch: 1, Threads: 1, GPU: 50, Median: 1, Runs: 1, DeviceMemory: -1},
		{Batch: 1, Threads: 1, GPU: 50, Median: 1, Runs: 1, In: -1},
	} {
		if err := devices(m).Validate(); err == nil {
			t.Errorf("%+v is valid", m)
		}
	}
	if err := devices(on(50, 1, 1, 0), on(50, 1, 1, 0)).Validate(); err == nil {
		t.Error("a point twice is valid")
	}
}

// Times on a GPU rise with the batch, fall with the share, and a candidate has its config's
// time.
func FuzzDeviceTimes(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var ms []Measurement
		// A smaller share is slower, so it may have fewer batches.
		for batches := 7; len(data) >= 1+2*7 && batches > 0; data = data[1+2*7:] {
			g := 100 - int(data[0])%100
			if len(ms) > 0 && g >= ms[len(ms)-1].GPU {
				break
			}
			batches -= int(data[1]) % 2
			for b := range batches {
				ms = append(ms, on(g, 1<<b, 1+float64(data[1+2*b])*40, float64(data[2+2*b])*10))
			}
		}
		p := devices(ms...)
		for _, cpu := range []int{100, 250, 1000} {
			for b := 1; b <= 64; b *= 2 {
				last := time.Duration(0)
				for g := 100; g >= 1; g-- {
					got, ok := p.ExecTime(b, Share{CPU: cpu, GPU: g})
					if ok && cpu == 1000 && got < last-2 {
						t.Fatalf("b = %d: %v on %d %% after %v", b, got, g, last)
					}
					last = max(last, got)
				}
			}
			for _, g := range p.DeviceShares() {
				if table := p.Table(64, Share{CPU: cpu, GPU: g}); !slices.IsSorted(table) {
					t.Fatalf("at %dm on %d %%: %v", cpu, g, table)
				}
			}
		}
		for _, c := range p.DeviceCandidates(Bounds{MaxBatch: 64}) {
			if got, ok := p.ExecTime(c.Batch, c.Share); !ok || got != c.Exec || c.GPUMemory < p.DeviceMemory(1) {
				t.Fatalf("%+v takes %v", c, got)
			}
		}
	})
}

// 8 ms on 20 % and 5 ms on 40 % give 6 ms on 30 %, of which 5 ms were measured: 20 %.
func TestHeldOut(t *testing.T) {
	p := devices(on(20, 1, 8000, 0), on(30, 1, 5000, 0), on(40, 1, 5000, 0), on(20, 4, 1, 0), on(30, 4, 1, 0))
	if mean, n := p.HeldOut(); n != 1 || mean < 0.1999 || mean > 0.2001 {
		t.Errorf("%v of %d", mean, n)
	}
	if mean, n := profile(point(1, 1, 1000)).HeldOut(); n != 0 || mean != 0 {
		t.Errorf("%v of %d", mean, n)
	}
}

// Of models that take a whole GPU, instances fit on the smaller kind of two, too, and the profile has both kinds.
func TestWithOfWholeGPUs(t *testing.T) {
	whole := func(machine string, us float64, memory int64) *Profile {
		return &Profile{Machine: machine, WholeDevice: true, Measurements: []Measurement{{Batch: 1, Threads: 1, GPU: 100, Median: us, P95: us, DeviceMemory: memory}}}
	}
	large, small := whole("A100", 300, 80<<30), whole("T4", 900, 16<<30)
	for _, p := range []*Profile{(*Profile)(nil).With(large).With(small), (*Profile)(nil).With(small).With(large)} {
		if len(p.Measurements) != 1 || p.DeviceMemory(1) != 16<<30 || p.Measurements[0].Median != 900 {
			t.Errorf("%+v", p.Measurements)
		}
		if slices.Sort(p.Devices); !slices.Equal(p.Devices, []string{"A100", "T4"}) {
			t.Errorf("of %q", p.Devices)
		}
	}
	if len(large.Devices) > 0 {
		t.Error("With has changed its argument")
	}
}
