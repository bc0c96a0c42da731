package control

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// A function that runs on shares only is told what no GPU has.
func TestSaysWhyNoDevice(t *testing.T) {
	on := func(gpu int, memory int64) capacity.Candidate {
		return capacity.Candidate{Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 250, GPU: gpu, GPUMemory: memory << 30}}}
	}
	node := func(devices ...cluster.DeviceRoom) []cluster.Node {
		return []cluster.Node{{Name: "n", Devices: devices}}
	}
	room := func(memory int64, lost string) cluster.DeviceRoom {
		return cluster.DeviceRoom{UUID: "GPU-a", Total: cluster.Resources{GPU: 100, GPUMemory: memory << 30}, Lost: lost}
	}
	for _, test := range []struct {
		configs []capacity.Candidate
		nodes   []cluster.Node
		says    string
	}{
		{nil, node(), ""},
		{[]capacity.Candidate{on(10, 24), on(0, 0)}, node(room(16, "")), ""},
		{[]capacity.Candidate{on(10, 24), on(20, 16)}, node(room(16, "")), ""},
		{[]capacity.Candidate{on(10, 24), on(20, 20)}, node(room(8, ""), room(16, "")), "needs 20480 MiB of memory there, and the largest has 16384 MiB"},
		{[]capacity.Candidate{on(10, 1)}, node(), "no node has a GPU"},
		{[]capacity.Candidate{on(10, 1)}, node(room(16, "XID 79")), "GPU-a of node n: XID 79"},
		{[]capacity.Candidate{on(10, 1)}, node(room(16, "XID 79"), room(16, "")), ""},
		{[]capacity.Candidate{on(10, 1)}, []cluster.Node{{Total: cluster.Resources{GPU: 100, GPUMemory: 16 << 30}}}, ""},
	} {
		if why := noDevice(test.configs, test.nodes); (why == "") != (test.says == "") || !strings.Contains(why, test.says) {
			t.Errorf("%+v: %q", test, why)
		}
	}
}

// The status counts the instances that plans have stopped, but none that crashed. A function with as
// many instances as it may have is not short of any, whatever its load.
func TestStatusSaysWhatIsMissing(t *testing.T) {
	try(t, func(r *rig) {
		status := func(name string) provider.Status {
			t.Helper()
			s, ok := r.Status(full(name))
			if !ok {
				t.Fatalf("%s is not deployed", name)
			}
			return s
		}
		r.measured("f", "m", wholeCore)
		r.answered("f", "m")
		r.backend.crash(r.only().ID, "killed by signal 9")
		r.answered("f", "m")
		if s := status("f"); s.Stopped != 0 || s.Pods != 1 {
			t.Errorf("after a crash: %+v", s)
		}
		r.until("it is idle", func() bool { return status("f").Pods == 0 })
		if s := status("f"); s.Stopped != 1 {
			t.Errorf("idle: %+v", s)
		}
		r.measured("more", "m", wholeCore, func(f *provider.Function) { f.Inference.MaxReplicas = 0 })
		for _, c := range []struct {
			name  string
			short bool
		}{{"f", false}, {"more", true}} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				r.load(c.name, 100*time.Microsecond, 5*time.Second)
			}()
			r.until("it has too much load", func() bool {
				s := status(c.name)
				return s.AvailableReplicas > 0 && s.Problem != ""
			})
			if s := status(c.name); s.Short != c.short {
				t.Errorf("%s with too much load: %+v", c.name, s)
			}
			<-done
		}
	})
}

// A function whose instances are larger than any node says so at once, without a request; requests that wait in
// vain get the same reason; and it serves once there is such a node.
func TestSaysThatNoNodeIsLargeEnough(t *testing.T) {
	for what, edit := range map[string]func(*provider.Function){
		"no node has 64 cores":            func(f *provider.Function) { f.Inference.Requests.CPU = 64_000 },
		"no node has 2097152 MiB of memo": func(f *provider.Function) { f.Inference.Limits.Memory = 2 << 40 },
	} {
		tryWith(t, func(o *Options) { o.ColdWait = time.Second }, func(r *rig) {
			r.measured("f", "m", edit)
			r.until("it is said", func() bool { return strings.Contains(r.describe("f").Problem, what) })
			if s, _ := r.Status(full("f")); s.Slight || !strings.Contains(s.Problem, "waits for such a node") {
				t.Errorf("the status is %+v", s)
			}
			if _, err := r.invoke("f", "x"); status(err) != 503 || !strings.Contains(err.Error(), what) {
				t.Errorf("a request: %v", err)
			}
			r.backend.Mu.Lock()
			r.backend.Machines = append(r.backend.Machines, cluster.Node{Name: "large", Total: cluster.Resources{CPU: 96_000, Memory: 4 << 40}})
			r.backend.Mu.Unlock()
			r.until("it serves", func() bool {
				_, err := r.invoke("f", "x")
				return err == nil
			})
			if d := r.describe("f"); d.Problem != "" {
				t.Errorf("with such a node: %q", d.Problem)
			}
		})
	}
}
