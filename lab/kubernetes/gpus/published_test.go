package gpus

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/lab/testbed"
	"github.com/faas-infer/faas-infer/profiler"
)

const (
	engine, machine = "published", "INFless' testbed"
	// card is the name of the testbed's GPU in profiles.
	card = "GeForce RTX 2080 Ti, driver 450"
	// deviceMemory and hostMemory are an instance's, which is not published.
	deviceMemory, hostMemory = 1 << 30, 1 << 30
	// hostTime is the CPU time of a batch on a GPU, which is not published either.
	hostTime = 5 * time.Millisecond
)

// published are the models of INFless' testbed: their times on cores, and on shares of its GPU. It
// implements control's Models and Devices.
type published struct {
	// unable is why no model runs on a GPU, memory what an instance holds of one if it is not 0.
	unable string
	memory int64
}

// name returns the testbed's name of a model in an image.
func name(image string) string {
	_, last, _ := strings.Cut(image, "/")
	last, _, _ = strings.Cut(last, ":")
	return last
}

// rows returns the fastest published time in µs of each batch, by threads on cores (gpu 0) or by
// share.
func rows(model string, onGPU bool) map[[2]int]float64 {
	all := map[[2]int]float64{}
	for _, c := range testbed.INFlessTestbed().Configs(model) {
		if (c.GPU > 0) != onGPU {
			continue
		}
		key, us := [2]int{c.GPU, c.Batch}, c.Milliseconds*1000
		if !onGPU {
			key[0] = c.Millicores / 1000
		}
		if before, ok := all[key]; !ok || us < before {
			all[key] = us
		}
	}
	return all
}

func (published) Check(_ context.Context, file string, _ func(string) bool) error {
	if len(rows(name(file), true)) == 0 {
		return fmt.Errorf("%s is not published", file)
	}
	return nil
}

func (published) Hash(file string) (string, error) { return file, nil }

func (published) Bytes(string) int64 { return 0 }

func (published) Prepare(context.Context, string) (string, error) { return "/bundle/model.onnx", nil }

func (published) Measure(_ context.Context, file string, maxBatch int, _ time.Duration) (string, *profiler.Profile, error) {
	p := &profiler.Profile{Model: file, Engine: engine, Machine: machine, Memory: hostMemory}
	for key, us := range rows(name(file), false) {
		if key[1] <= maxBatch {
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: key[1], Threads: key[0], Median: us, P95: us, CPU: us * float64(key[0]), Runs: 20})
		}
	}
	return "/bundle/model.onnx", p, nil
}

func (m published) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.Measure(ctx, file, maxBatch, until)
}

func (m published) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.Measure(ctx, file, maxBatch, until)
}

func (published) Devices() []string { return []string{card} }

func (published) Suits(string, string) bool { return true }

func (m published) Unable(string, bool) string { return m.unable }

func (published) Unusable(string, string) string { return "" }

func (m published) OnDevice(_ context.Context, file, device string, maxBatch int, _ time.Duration) (*profiler.Profile, error) {
	p := &profiler.Profile{Model: file, Engine: engine + " cuda", Machine: device, Memory: hostMemory}
	for key, us := range rows(name(file), true) {
		if key[1] <= maxBatch {
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: key[1], Threads: 1, GPU: key[0], Median: us, P95: us,
				CPU: float64(hostTime.Microseconds()), Runs: 20, DeviceMemory: cmp.Or(m.memory, deviceMemory)})
		}
	}
	return p, nil
}

// answering makes stand-ins answer after the published times of the instances in whose place they
// are.
type answering struct {
	mu        sync.Mutex
	rig       *testprovider.Rig
	instances map[string]cluster.Instance
}

func (a *answering) exec(address string, batch int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	in, known := a.instances[address]
	if !known {
		list, err := a.rig.Backend.Instances(context.Background())
		if err != nil {
			return time.Second
		}
		a.instances = map[string]cluster.Instance{}
		for _, in := range list {
			a.instances[in.Address] = in
		}
		in = a.instances[address]
	}
	return exec(in, batch)
}

// exec returns the published time of a batch, by the next published larger one and the next smaller
// share.
func exec(in cluster.Instance, batch int) time.Duration {
	share := in.Config.GPU
	if share == 0 {
		share = in.Config.Threads()
	}
	best := [2]int{}
	all := rows(name(in.Bundle), in.Config.GPU > 0)
	for key := range all {
		if key[0] <= share && key[1] >= batch && (best == [2]int{} || key[0] > best[0] || key[0] == best[0] && key[1] < best[1]) {
			best = key
		}
	}
	return time.Duration(all[best] * float64(time.Microsecond))
}
