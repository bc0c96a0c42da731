package testbed

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/published"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

var _ systems.Times = (*Testbed)(nil)

func testbed(t *testing.T, model string) *Testbed {
	t.Helper()
	p, err := FromTestbed(INFlessTestbed(), model, Memory{1 << 30, 1 << 29})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func on(cpu, gpu int) cluster.Config {
	return cluster.Config{Resources: cluster.Resources{CPU: cpu, GPU: gpu}}
}

func millis(p systems.Times, cpu, gpu, b int) float64 {
	t, ok := p.Exec(on(cpu, gpu), b)
	if !ok {
		return 0
	}
	return float64(t) / float64(time.Millisecond)
}

// Measured configs have their measured times. Others are interpolated.
func TestTestbed(t *testing.T) {
	resnet, lstm := testbed(t, "resnet-50"), testbed(t, "lstm-maxclass-2365")
	for _, c := range []struct {
		p           *Testbed
		cpu, gpu, b int
		want        float64
	}{
		{resnet, 2000, 10, 1, 60}, {resnet, 2000, 10, 4, 112.5}, {resnet, 4000, 10, 8, 164},
		{resnet, 2000, 10, 3, (72 + 112.5) / 2},
		// Four threads were measured from batch 4 on: below, by what two threads tell.
		{resnet, 4000, 10, 1, 98.75 * 60 / 112.5},
		// Eight threads from batch 8 on, four threads tell of 4 of 8.
		{resnet, 8000, 10, 4, 158.13 * 98.75 / 164}, {resnet, 8000, 10, 1, 158.13 * 98.75 / 164 * 60 / 112.5},
		// Between shares, on lines.
		{resnet, 3000, 10, 4, (112.5 + 98.75) / 2}, {resnet, 2000, 15, 4, (112.5 + 92.75) / 2},
		// 20, 20, 19.25 ms is noise.
		{lstm, 2000, 10, 1, 19.75}, {lstm, 2000, 10, 4, 19.75},
		// Nothing is known.
		{resnet, 2000, 10, 8, 0}, {resnet, 1000, 10, 1, 0}, {resnet, 2000, 5, 1, 0}, {resnet, 2000, 60, 1, 0}, {resnet, 2000, 10, 0, 0}, {resnet, 32000, 0, 1, 0},
	} {
		if got := millis(c.p, c.cpu, c.gpu, c.b); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%s ⟨%d, %d, %d⟩: %v ms, want %v", c.p.Model(), c.b, c.cpu, c.gpu, got, c.want)
		}
	}
}

func TestTestbedConfigs(t *testing.T) {
	r := INFlessTestbed()
	for _, model := range r.Models() {
		p := testbed(t, model)
		configs, measured := p.Configs(), r.Configs(model) // Both by GPU, CPU and batch.
		if len(configs) != len(measured) {
			t.Fatalf("%s: %d configs", model, len(configs))
		}
		for i, c := range configs {
			if c.Memory != 1<<30 || (c.GPUMemory != 0) != (c.GPU > 0) {
				t.Errorf("%s: %+v", model, c)
			}
			last := time.Duration(0)
			for b := 1; b <= c.Batch; b++ {
				exec, ok := p.Exec(c, b)
				if !ok || exec < last || exec <= 0 {
					t.Errorf("%s on %v: %d take %v after %v", model, c, b, exec, last)
				}
				last = exec
			}
			// Smoothing moves no time by more than the noise that it removes: some
			// were published in whole milliseconds.
			want := measured[i].Milliseconds
			if got := millis(p, c.CPU, c.GPU, c.Batch); math.Abs(got-want) > max(0.5, 0.1*want) {
				t.Errorf("%s on %v: %v ms, published %v", model, c, got, want)
			}
		}
		if s := p.Spread(); s < 0.01 || s > 0.13 {
			t.Errorf("%s: spread %v", model, s)
		}
	}
	if _, err := FromTestbed(r, "bert", Memory{}); err == nil || !strings.Contains(err.Error(), `no model "bert": it has ["catdog"`) {
		t.Errorf("got %v", err)
	}
}

// SSD's times at 2 threads and batch 1 by GPU share are 140.43, 128.87, 133.43, 125.9 and
// 130.9 ms: they vary by about 3 %. The spread of all its groups is 1.96 %.
func TestSpread(t *testing.T) {
	if got := testbed(t, "ssd").Spread(); math.Abs(got-0.0196) > 0.0001 {
		t.Errorf("got %v", got)
	}
	p := testbed(t, "ssd")
	p.SetSpread(0.2)
	if p.Spread() != 0.2 {
		t.Error("the spread was not replaced")
	}
	few, err := ParseTestbed([]byte("model,cpu_threads,gpu_sm_pct,batch,latency_ms\nm,2,10,1,5\nm,2,20,1,4\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := FromTestbed(few, "m", Memory{}); err != nil || p.Spread() != DefaultSpread {
		t.Errorf("%v, %v", p, err)
	}
}

// BATCH's regression over all rows of a model is less than 8 % off them on average. Lambda's is
// less than 2 % off (BATCH §VI-B).
func TestRegression(t *testing.T) {
	for _, model := range []string{"ssd", "resnet-50", "mobilenet", "textcnn-69"} {
		p, off := testbed(t, model), 0.0
		var rows []published.Row
		for _, c := range p.Configs() {
			at, _ := p.Exec(c, c.Batch)
			rows = append(rows, published.Row{Batch: c.Batch, Resources: c.Resources, Time: at})
		}
		fitted, err := published.FitPolynomial(rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			off += math.Abs(fitted.At(r.Batch, r.Resources).Seconds()/r.Time.Seconds()-1) / float64(len(rows))
		}
		t.Logf("%s: %.1f %% off on average, %d rows", model, 100*off, len(rows))
		if off > 0.08 {
			t.Errorf("%s: %.1f %% off", model, 100*off)
		}
	}
}

// Only large batches of a share are known, and no smaller share.
func TestSmallBatchesOfALoneShare(t *testing.T) {
	lone, err := ParseTestbed([]byte("model,cpu_threads,gpu_sm_pct,batch,latency_ms\nm,8,0,8,20\nm,8,0,16,30\nn,8,0,8,20\no,8,0,8,20\no,8,0,16,60\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model string
		b     int
		want  float64
	}{
		{"m", 4, 15}, {"m", 1, 11.25}, // on the line of 1.25 ms a request
		{"n", 4, 10},                // in proportion
		{"o", 4, 10}, {"o", 1, 2.5}, // 5 ms a request would go below
	} {
		p, err := FromTestbed(lone, c.model, Memory{})
		if err != nil {
			t.Fatal(err)
		}
		if got := millis(p, 8000, 0, c.b); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s, batch %d: %v ms, want %v", c.model, c.b, got, c.want)
		}
	}
}

func TestMonotone(t *testing.T) {
	for _, c := range [][2][]float64{
		{{20, 20, 19.25}, {19.75, 19.75, 19.75}},
		{{1, 2, 3}, {1, 2, 3}},
		{{1, 3, 2, 4}, {1, 2.5, 2.5, 4}},
		{{3, 2, 1}, {2, 2, 2}},
		{nil, {}},
	} {
		if got := monotone(c[0]); !slices.Equal(got, c[1]) {
			t.Errorf("%v: got %v", c[0], got)
		}
	}
}

func TestFastest(t *testing.T) {
	ssd := testbed(t, "ssd")
	all := func(cluster.Config) bool { return true }
	if exec, c, ok := Fastest(ssd, all); !ok || exec != 125900*time.Microsecond || c.CPU != 2000 || c.GPU != 40 {
		t.Errorf("%v on %v", exec, c)
	}
	noGPU := func(r cluster.Config) bool { return r.GPU == 0 }
	if exec, c, ok := Fastest(ssd, noGPU); !ok || exec != 157930*time.Microsecond || c.CPU != 16000 {
		t.Errorf("%v on %v", exec, c)
	}
	if _, _, ok := Fastest(ssd, func(cluster.Config) bool { return false }); ok {
		t.Error("nothing fits, but something is fastest")
	}
}

// For any measurements, times are positive and never fall with the batch.
func FuzzFromTestbed(f *testing.F) {
	const header = "model,cpu_threads,gpu_sm_pct,batch,latency_ms\n"
	f.Add(header + "m,2,10,1,5\nm,2,10,4,4\nm,4,10,4,3\nm,4,10,8,9\nm,8,20,64,7\nm,8,0,2,1\n")
	f.Add(header + "m,1,0,65536,0.001\nm,2,0,1,1e8\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseTestbed([]byte(text))
		if err != nil {
			return
		}
		for _, model := range r.Models() {
			p, err := FromTestbed(r, model, Memory{1, 1})
			if err != nil {
				t.Fatal(err)
			}
			if s := p.Spread(); !(s >= 0) || math.IsInf(s, 0) {
				t.Fatalf("a spread of %v", s)
			}
			for _, c := range p.Configs() {
				last := time.Duration(0)
				for _, b := range []int{1, 2, 3, c.Batch/2 + 1, c.Batch} {
					exec, ok := p.Exec(c, b)
					if b > c.Batch {
						continue
					}
					if !ok || exec < 0 {
						t.Fatalf("%s on %v: %v, %v", model, c, exec, ok)
					}
					last = max(last, exec)
				}
				if whole, _ := p.Exec(c, c.Batch); whole < last {
					t.Fatalf("%s on %v: a smaller batch takes longer than %v", model, c, whole)
				}
			}
		}
	})
}
