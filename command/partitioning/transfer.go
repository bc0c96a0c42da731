package partitioning

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/partition"
	"github.com/faas-infer/faas-infer/partition/delay"
)

// anyMemory is more than any machine has, in MiB.
const anyMemory = 1 << 24

// Platform measures this machine: an instance computes on one thread, on each core one at a
// time, and is reached over the loopback interface. Its memory is not limited. Costs are the
// time of cores.
func Platform(ctx context.Context) (*partition.Platform, error) {
	codec, err := Codec()
	if err != nil {
		return nil, err
	}
	transfer, _, err := Transfer(ctx)
	if err != nil {
		return nil, err
	}
	n := runtime.NumCPU()
	crowding, err := crowding(ctx, n)
	if err != nil {
		return nil, err
	}
	return &partition.Platform{
		Name: Local, Source: "measured on this machine", MemoryMiB: anyMemory, MaxParts: n, Crowding: crowding, Codec: codec, Transfer: transfer,
	}, nil
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
			w.measure(9)
			return w
		}
		w.steps *= 2
	}
}

// measure sets ms to the median of some runs.
func (w *work) measure(runs int) {
	var all []float64
	for range runs {
		all = append(all, w.do())
	}
	slices.Sort(all)
	w.ms = all[len(all)/2]
}

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
// share the machine's memory and its clock.
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
			if len(group) == 1 {
				alone = append(alone, took...)
			} else {
				together = append(together, took...)
			}
		}
	}
	if len(together) == 0 {
		return 1, nil
	}
	slices.Sort(alone)
	slices.Sort(together)
	return max(1, together[len(together)/2]/alone[len(alone)/2]), nil
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

// echo is an engine that computes for a while and returns its input.
type echo struct{ work *work }

var echoed = []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1}}}

func (echo) Inputs() []tensor.Info  { return echoed }
func (echo) Outputs() []tensor.Info { return echoed }
func (echo) Close() error           { return nil }
func (e echo) Run(_ context.Context, _ int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	out := inputs[0]
	out.Data = append([]byte(nil), out.Data...)
	if e.work != nil {
		e.work.do()
	}
	return []tensor.Tensor{out}, nil
}

// transferred are the sizes in bytes whose round trips are measured, calls how often.
var transferred = []int64{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

const calls = 60

// Transfer measures round trips to an instance over the loopback interface, with tensors of
// several sizes, and fits the delays. Both ways carry the same, so each gets half of what
// grows with the size. Both sides compute meanwhile, as in a round: the delay is what the
// round takes longer than the computation.
func Transfer(ctx context.Context) (delay.Transfer, []delay.Sample, error) {
	const computing = 5 // ms
	return transfer(ctx, newWork(computing))
}

// Idle is Transfer without any computation.
func Idle(ctx context.Context) (delay.Transfer, []delay.Sample, error) { return transfer(ctx, nil) }

func transfer(ctx context.Context, beside *work) (delay.Transfer, []delay.Sample, error) {
	handler, err := instance.NewServer(echo{beside}, instance.Options{Name: "echo", MaxBatch: 1, Logger: zerolog.Nop()})
	if err != nil {
		return delay.Transfer{}, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return delay.Transfer{}, nil, err
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
		return delay.Transfer{}, nil, err
	}
	samples, err := roundTrips(ctx, client, beside)
	if err != nil {
		return delay.Transfer{}, nil, err
	}
	const mib = 1 << 20
	both, err := delay.Fit(samples, mib)
	if err != nil {
		return delay.Transfer{}, nil, err
	}
	both.KPerUnit, both.LocPerUnit, both.ScalePerUnit = both.KPerUnit/2, both.LocPerUnit/2, both.ScalePerUnit/2
	return delay.Transfer{UnitBytes: mib, Send: both, Return: both}, samples, nil
}

func roundTrips(ctx context.Context, client *upstream.OpenInference, beside *work) (samples []delay.Sample, err error) {
	for _, size := range transferred {
		in := []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1, size / 4}, Data: make([]byte, size)}}
		for i := range calls + 3 {
			ms, err := roundTrip(ctx, client, in, beside)
			if err != nil {
				return nil, err
			}
			if i >= 3 { // The first ones make connections and buffers.
				samples = append(samples, delay.Sample{Bytes: size, Ms: ms})
			}
		}
	}
	return samples, nil
}

// roundTrip is one call, and the computation beside it as soon as its input is sent.
func roundTrip(ctx context.Context, client *upstream.OpenInference, in []tensor.Tensor, beside *work) (float64, error) {
	began := time.Now()
	if beside == nil {
		_, err := client.Infer(ctx, 1, in, echoed)
		return float64(time.Since(began).Nanoseconds()) / 1e6, err
	}
	sent, answered := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(sent) })
	go func() {
		_, err := client.Infer(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }}), 1, in, echoed)
		once()
		answered <- err
	}()
	<-sent
	beside.do()
	err := <-answered
	return max(0.001, float64(time.Since(began).Nanoseconds())/1e6-beside.ms), err
}
