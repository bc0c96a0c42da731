package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// OnGPU compares the provider with Triton on one GPU: one model, one objective, one search of the
// highest rate for both. Triton has the whole GPU, and [Tuning] tunes its dynamic batching.
type OnGPU struct {
	// Device is the UUID of the GPU. "" compares both on the CPU, to try the comparison.
	Device string
	// Model is an architecture of the zoo.
	Model string
	SLO   time.Duration
	// Trial, Budget and Warm are the times of a rate, of a search, and of the part of a rate that does
	// not count.
	Trial, Budget, Warm time.Duration
	// Settings is the number of Triton's settings that may be measured.
	Settings int
}

// Compared is the result of [OnGPU.Run].
type Compared struct {
	// Ours and Triton are requests/s within the objective.
	Ours, Triton float64
	// Best is Triton's best setting, Tried the number of those measured.
	Best  string
	Tried int
}

// The tolerance between answers with TF32, which keeps three decimal digits of a product.
const absoluteOnGPU, relativeOnGPU = 2e-2, 5e-2

// onGPU is Triton with its model on a GPU.
var onGPU = Peer{
	Name: "triton-cuda", engine: "triton", delay: "max_queue_delay_microseconds", workers: "instances",
	ways:    map[Payload][]Way{Binary: {grpcWay, v2BinaryWay}},
	without: "the wheel on PyPI has no ONNX Runtime backend: the model runs in Triton's Python backend with onnxruntime-gpu",
	start:   startTriton,
}

// OnGPUWithout says what Triton lacks in the comparison.
func OnGPUWithout() string { return onGPU.without }

// Run measures the provider, then Triton by setting.
func (g OnGPU) Run(ctx context.Context, o rig.Options) (out Compared, err error) {
	p, u := onGPU, &run{o: o, r: report.New("", time.Now()), python: map[string]environment.Environment{}, missing: map[string]error{}}
	u.Core, u.payloads, u.gpu = Anywhere, []Payload{Binary}, g.Device
	if u.arguments = []string{"--gpus", g.Device}; g.Device == "" {
		p.Name, u.arguments = "triton", nil
	}
	if u.dir, err = os.MkdirTemp("", "fip-"); err != nil {
		return out, err
	}
	defer os.RemoveAll(u.dir)
	if err := u.environment(ctx, p); err != nil {
		return out, fmt.Errorf("Triton's Python environment: %w", err)
	}
	m, err := rig.NewSubject(g.Model)
	if err != nil {
		return out, err
	}
	defer m.Close()
	s := &subject{
		Trials:   Trials{SLO: g.SLO, Trial: g.Trial, Budget: g.Budget, Warm: g.Warm, Log: o.Log},
		absolute: absoluteOnGPU,
		relative: relativeOnGPU,
	}
	if err := s.sample(m); err != nil {
		return out, err
	}
	rates, err := u.ours(ctx, m, s)
	if err != nil {
		return out, fmt.Errorf("ours: %w", err)
	}
	out.Ours = rates[Binary]
	best, tried, err := u.tune(ctx, m, s, p, NewTuning(g.SLO, g.Settings))
	out.Triton, out.Best, out.Tried = best.rate, p.describe(best.point), tried
	return out, err
}

// tune measures a peer by one setting after the other, each with a server of its own. A setting that
// fails counts as 0; the errors are returned if all fail.
func (u *run) tune(ctx context.Context, m *rig.Subject, s *subject, p Peer, t *Tuning) (best found, tried int, err error) {
	var failed error
	for ; ; tried++ {
		x, done := t.Next()
		if done {
			break
		}
		got, err := u.setting(ctx, m, s, p, x, best)
		if ctx.Err() != nil {
			return best, tried, ctx.Err()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", p.describe(point{x, best.way}), err)
			fmt.Fprintln(s.Log, err)
			failed = errors.Join(failed, err)
		}
		if t.Saw(x, got.rate); got.rate > best.rate {
			best = got
		}
	}
	if best.rate == 0 {
		return best, tried, errors.Join(errors.New("Triton answers no rate within the objective"), failed)
	}
	return best, tried, nil
}

// setting measures one setting by the best way so far, or by all ways if there is none.
func (u *run) setting(ctx context.Context, m *rig.Subject, s *subject, p Peer, x Setting, best found) (got found, err error) {
	server, err := u.start(ctx, m, s, p, []Setting{x})
	if err != nil {
		return got, err
	}
	defer server.Stop()
	ways := p.ways[Binary]
	if best.rate > 0 {
		ways = []Way{best.way}
	}
	for _, way := range ways {
		fmt.Fprintf(s.Log, "%s: %s\n", m.Name, p.describe(point{x, way}))
		rate, failed := u.point(ctx, s, server, point{x, way}, max(best.rate, got.rate))
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s", failed, server.Said()))
		}
		if rate > got.rate {
			got = found{point{x, way}, rate}
		}
	}
	return got, err
}

// environment makes the Python environment of a peer if it is missing.
func (u *run) environment(ctx context.Context, p Peer) error {
	file := filepath.Join(u.dir, p.Name+".txt")
	if err := copyService(p.Name+".txt", file); err != nil {
		return err
	}
	e, err := environment.Find(ctx, p.engine, file)
	if err == nil && !e.Made() {
		began := time.Now()
		fmt.Fprintf(u.o.Log, "making the Python environment of %s, which takes some minutes the first time\n", p.Name)
		e, err = environment.Ensure(ctx, p.engine, file)
		fmt.Fprintf(u.o.Log, "it took %v\n", time.Since(began).Round(time.Second))
	}
	u.python[p.Name] = e
	return err
}

// sample makes the requests that are sent in turn.
func (s *subject) sample(m *rig.Subject) error {
	for seed := range uint64(samples) {
		inputs, err := m.Samples(seed)
		if err != nil {
			return err
		}
		s.inputs = append(s.inputs, inputs)
	}
	return nil
}

// annotations are those of the provider's function: on a GPU it may not use the CPU's cores instead.
func (u *run) annotations(slo time.Duration) map[string]string {
	all := map[string]string{annotation.SLOLatency: slo.String()}
	if u.gpu != "" {
		all[annotation.InferDevice] = annotation.DeviceCUDA
	}
	return all
}
