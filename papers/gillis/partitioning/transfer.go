package partitioning

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// anyMemory is more than any machine has, in MiB.
const anyMemory = 1 << 24

// Platform is this machine: an instance computes on one thread, on each core one at a time,
// and is reached over the loopback interface. Its memory is not limited. Costs are the time of
// cores. The machine is measured once, as far as it is calm enough: the result is kept beside
// the database of operators' profiles, "" for the usual one.
func Platform(ctx context.Context, database string) (*partition.Platform, error) {
	path, err := profile.DatabasePath(database)
	if err != nil {
		return nil, err
	}
	path += ".platform.json"
	if p := kept(path); p != nil {
		return p, nil
	}
	p, calm, err := measure(ctx)
	if err != nil || !calm {
		return p, err
	}
	return p, keep(path, p)
}

// kept reads a platform that was measured on this machine, nil if there is none.
func kept(path string) *partition.Platform {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	p, err := partition.ReadPlatform(f)
	if err != nil || p.Name != Local || p.Source != source() {
		return nil // It is measured again.
	}
	return p
}

// source identifies this machine and the program that has measured it.
func source() string { return "measured on " + report.Machine() + " with " + onnxruntime.Name() }

func keep(path string, p *partition.Platform) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	return errors.Join(os.WriteFile(partial, append(text, '\n'), 0o644), os.Rename(partial, path))
}

// measure measures this machine. calm says that other programs left it the cores that it needed.
func measure(ctx context.Context) (p *partition.Platform, calm bool, err error) {
	codec, err := Codec()
	if err != nil {
		return nil, false, err
	}
	n := runtime.NumCPU()
	crowding, err := crowding(ctx, n)
	if err != nil {
		return nil, false, err
	}
	transfer, _, calm, err := Transfer(ctx)
	return &partition.Platform{
		Name: Local, Source: source(), MemoryMiB: anyMemory, MaxParts: n, Crowding: crowding, Codec: codec, Transfer: transfer,
	}, calm, err
}

// work is a computation that takes the same time again and again, as long as it has a core.
type work struct {
	steps int
	ms    float64
	sink  float32
}

// newWork makes a computation that takes about so many ms.
func newWork(ms float64) *work {
	w := &work{steps: 1 << 16}
	for {
		if w.measure(5); w.ms >= ms/2 {
			w.steps = int(float64(w.steps) * ms / w.ms)
			w.measure(19)
			return w
		}
		w.steps *= 2
	}
}

// measure sets ms to the least of some runs.
func (w *work) measure(runs int) {
	w.ms = math.Inf(1)
	for range runs {
		w.ms = min(w.ms, w.do())
	}
}

// undisturbed reports whether a run that took so many ms had a core for itself.
func (w *work) undisturbed(ms float64) bool { return ms <= 1.1*w.ms }

// do computes once and returns how long it took in ms. It may run several times at once.
func (w *work) do() float64 {
	began, x, y := time.Now(), float32(1.0001), float32(0)
	for range w.steps {
		y = y*0.5 + x
		x = x*0.999 + 0.001
	}
	if y < 0 { // It never is; the compiler does not know.
		w.sink = y
	}
	return float64(time.Since(began).Nanoseconds()) / 1e6
}

// crowded is the model by which crowding is measured.
const crowded = "vggnet"

// crowding measures by how much n instances of a model slow each other, each with a core: they
// share the machine's memory and its clock. The least times count: other programs only add.
func crowding(ctx context.Context, n int) (factor float64, err error) {
	if err := onnxruntime.Load(""); err != nil {
		return 0, err
	}
	m, err := zoo.Make(crowded, 1)
	if err != nil {
		return 0, err
	}
	inputs, err := m.SampleInputs(1, 1)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-crowding-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "model.onnx")
	if err := m.WriteFile(file); err != nil {
		return 0, err
	}
	var engines []*onnxruntime.Engine
	for range n {
		e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
		if err != nil {
			return 0, err
		}
		defer e.Close()
		engines = append(engines, e)
	}
	const runs = 9
	var alone, together []float64
	for range runs {
		for _, group := range [][]*onnxruntime.Engine{engines[:1], engines} {
			took, err := atOnce(ctx, group, inputs)
			if err != nil {
				return 0, err
			}
			mean := 0.0
			for _, ms := range took {
				mean += ms / float64(len(took))
			}
			if len(group) == 1 {
				alone = append(alone, mean)
			} else {
				together = append(together, mean)
			}
		}
	}
	if len(together) == 0 {
		return 1, nil
	}
	return max(1, slices.Min(together)/slices.Min(alone)), nil
}

// atOnce runs all engines at the same time and returns how long each took in ms.
func atOnce(ctx context.Context, engines []*onnxruntime.Engine, inputs []tensor.Tensor) ([]float64, error) {
	took, failed := make([]float64, len(engines)), make([]error, len(engines))
	var all sync.WaitGroup
	for i, e := range engines {
		all.Go(func() {
			began := time.Now()
			_, failed[i] = e.Run(ctx, 1, inputs)
			took[i] = float64(time.Since(began).Nanoseconds()) / 1e6
		})
	}
	all.Wait()
	return took, errors.Join(failed...)
}

// echo is an engine that computes for a while and returns its input. It says how long it
// computed in µs.
type echo struct {
	work *work
	took *atomic.Int64
}

var echoed = []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1}}}

func (echo) Inputs() []tensor.Info  { return echoed }
func (echo) Outputs() []tensor.Info { return echoed }
func (echo) Close() error           { return nil }
func (e echo) Run(_ context.Context, _ int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	out := inputs[0]
	out.Data = append([]byte(nil), out.Data...)
	if e.work != nil {
		e.took.Store(int64(1000 * e.work.do()))
	}
	return []tensor.Tensor{out}, nil
}

// transferred are the sizes in bytes whose round trips are measured, calls how often. If other
// programs disturb some calls, up to disturbed times as many more are tried. Tests try fewer.
var (
	transferred = []int64{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	calls       = 60
	disturbed   = 4
)

// Transfer measures round trips to an instance over the loopback interface, with tensors of
// several sizes, and fits the delays. Both ways carry the same, so each gets half of what
// grows with the size. Both sides compute meanwhile, as in a round: the delay is what the
// round takes longer than the computation. Calls in which other programs took a core do not
// count; calm says that enough were left.
func Transfer(ctx context.Context) (t delay.Transfer, samples []delay.Sample, calm bool, err error) {
	const computing = 5 // ms
	return transfer(ctx, newWork(computing))
}

// Idle is Transfer without any computation.
func Idle(ctx context.Context) (delay.Transfer, []delay.Sample, error) {
	t, samples, _, err := transfer(ctx, nil)
	return t, samples, err
}

func transfer(ctx context.Context, beside *work) (t delay.Transfer, samples []delay.Sample, calm bool, err error) {
	engine := echo{beside, new(atomic.Int64)}
	handler, err := instance.NewServer(engine, instance.Options{Name: "echo", MaxBatch: 1, Logger: zerolog.Nop()})
	if err != nil {
		return t, nil, false, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return t, nil, false, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	defer func() {
		server.Close()
		<-served
	}()
	client := upstream.NewOpenInference("http://"+l.Addr().String(), "echo")
	defer client.Close()
	if _, _, err := client.Signature(ctx); err != nil {
		return t, nil, false, err
	}
	calm = true
	for _, size := range transferred {
		of, undisturbed, err := (&caller{client, engine}).roundTrips(ctx, size)
		if err != nil {
			return t, nil, false, err
		}
		samples, calm = append(samples, of...), calm && undisturbed
	}
	const mib = 1 << 20
	both, err := delay.Fit(samples, mib)
	if err != nil {
		return t, nil, false, err
	}
	both.KPerUnit, both.LocPerUnit, both.ScalePerUnit = both.KPerUnit/2, both.LocPerUnit/2, both.ScalePerUnit/2
	return delay.Transfer{UnitBytes: mib, Send: both, Return: both}, samples, calm, nil
}

// caller calls an echo.
type caller struct {
	client *upstream.OpenInference
	echo   echo
}

// roundTrips measures calls with one size. If other programs disturb nearly all, the quickest
// of the disturbed ones count.
func (c *caller) roundTrips(ctx context.Context, size int64) (samples []delay.Sample, calm bool, err error) {
	in := []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1, size / 4}, Data: make([]byte, size)}}
	var rest []delay.Sample
	const first = 3 // make connections and buffers
	for i := 0; i < first+(1+disturbed)*calls && len(samples) < calls; i++ {
		ms, undisturbed, err := c.roundTrip(ctx, in)
		if err != nil {
			return nil, false, err
		}
		switch one := (delay.Sample{Bytes: size, Ms: ms}); {
		case i < first:
		case undisturbed:
			samples = append(samples, one)
		default:
			rest = append(rest, one)
		}
	}
	if len(samples) >= calls/2 {
		return samples, true, nil
	}
	slices.SortFunc(rest, func(a, b delay.Sample) int { return cmp.Compare(a.Ms, b.Ms) })
	return append(samples, rest[:min(len(rest), calls/2)]...), false, nil
}

// roundTrip is one call, and the computation beside it as soon as its input is sent.
func (c *caller) roundTrip(ctx context.Context, in []tensor.Tensor) (ms float64, undisturbed bool, err error) {
	began := time.Now()
	since := func() float64 { return float64(time.Since(began).Nanoseconds()) / 1e6 }
	beside := c.echo.work
	if beside == nil {
		_, err := c.client.Infer(ctx, 1, in, echoed)
		return since(), true, err
	}
	sent, answered := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(sent) })
	go func() {
		_, err := c.client.Infer(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }}), 1, in, echoed)
		once()
		answered <- err
	}()
	<-sent
	own := beside.do()
	err = <-answered
	const least = 0.001 // The fit needs times above 0.
	return max(least, since()-beside.ms), beside.undisturbed(own) && beside.undisturbed(float64(c.echo.took.Load())/1000), err
}
