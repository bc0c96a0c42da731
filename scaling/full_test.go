package scaling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// fullWorld has that many functions with a load, of a few models, and nodes with much less room
// than they need. Every other node has a GPU if gpus is set.
func fullWorld(functions, nodes, cpu int, gpus bool) *world {
	w := newWorld(DefaultSettings())
	for i := range nodes {
		gpu := 0
		if gpus && i%2 > 0 {
			gpu = 100
		}
		w.nodes = append(w.nodes, node(fmt.Sprintf("n%03d", i), cpu, gpu, 64<<30))
	}
	for i := range functions {
		f := w.function(fmt.Sprintf("f%04d", i))
		f.SLO, f.Queue, f.ColdWait = time.Duration(100+10*(i%17))*ms, capacity.LateBound, 30*time.Second
		f.Rate, f.Waiting = float64(1+i%23), 1+i%5
		for b := 1; b <= 8; b *= 2 {
			for _, c := range []int{250, 500, 1000, 2000} {
				for _, g := range []int{0, 20, 50} {
					if g > 0 && !gpus {
						continue
					}
					speed := float64(c)/1000 + float64(g)/10
					x := config(b, c, g, time.Duration(float64(3*ms)*(1+float64(i%7))*(1+0.6*float64(b))/speed))
					x.Mean = x.Exec * 9 / 10
					f.Configs = append(f.Configs, x)
				}
			}
		}
	}
	return w
}

// fullNodes are the nodes of the benchmark.
var fullNodes = []struct {
	nodes, cpu int
	gpus       bool
}{{1, 2000, false}, {1, 64000, false}, {8, 16000, false}, {30, 16000, true}}

// The benchmark plans for 1,000 functions on too few nodes: all of them begin, then most of
// them have no instance, and then the load is three times as high.
func BenchmarkFullNodes(b *testing.B) {
	for _, c := range fullNodes {
		b.Run(fmt.Sprintf("%d×%dm,gpus=%v", c.nodes, c.cpu, c.gpus), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			longest := time.Duration(0)
			for b.Loop() {
				w := fullWorld(1000, c.nodes, c.cpu, c.gpus)
				for second := range 6 {
					w.now = w.now.Add(time.Second)
					began := processorTime(b)
					w.scale()
					longest = max(longest, processorTime(b)-began)
					for _, f := range w.functions {
						if second == 2 {
							f.Rate *= 3
						}
						if len(f.Instances) > 0 {
							f.Waiting = 0
						}
					}
				}
			}
			b.ReportMetric(longest.Seconds(), "s/longest-plan")
		})
	}
}

// processorTime returns the processor time that this thread has used.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The bound on the work does not make plans depend on anything but their arguments, does not
// leave out functions and lets the nodes be filled.
func TestThousandFunctionsOnFullNodes(t *testing.T) {
	plans := map[bool]Plan{}
	for _, again := range []bool{false, true} {
		w := fullWorld(1000, 8, 16000, false)
		plan := w.scale()
		plans[again] = plan
		got := map[string]bool{}
		taken := 0
		for _, s := range plan.Start {
			got[s.Function] = true
			taken += s.Config.CPU
		}
		for _, u := range plan.Unplaced {
			got[u.Function] = true
		}
		if len(got) != len(w.functions) || taken < 7*16000 {
			t.Errorf("%d of %d functions get an instance or a reason; the instances take %dm of %dm", len(got), len(w.functions), taken, 8*16000)
		}
	}
	if !reflect.DeepEqual(plans[false], plans[true]) {
		t.Error("two plans for the same state differ")
	}
}

// Some tens of functions, alike or not, get the same plans as without a bound on the work.
func TestWorkSuffices(t *testing.T) {
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 77))
		w := fullWorld(5+r.IntN(60), 1+r.IntN(6), 4000*(1+r.IntN(4)), seed%2 > 0)
		for i, f := range w.functions {
			if seed%4 > 1 {
				f.SLO, f.Configs = w.functions[i%3].SLO, w.functions[i%3].Configs
			}
		}
		unbounded := New(w.engine.settings)
		unbounded.work = math.MaxInt
		for second := range 12 {
			if second%4 == 0 {
				for _, f := range w.functions {
					f.Rate, f.Waiting = math.Floor(r.ExpFloat64()*30), r.IntN(3)
				}
			}
			w.now = w.now.Add(time.Second)
			w.settle()
			functions, nodes := w.shuffled(r)
			want := unbounded.Scale(w.now, functions, nodes)
			if got := w.scale(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, second %d:\n%s\nwithout a bound:\n%s", seed, second, w.print(got), w.print(want))
			}
		}
	}
}
