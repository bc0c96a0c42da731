package partitioning

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
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
	return &partition.Platform{Name: Local, Source: "measured on this machine", MemoryMiB: anyMemory, MaxParts: runtime.NumCPU(), Codec: codec, Transfer: transfer}, nil
}

// echo is an engine that returns its input.
type echo struct{}

var echoed = []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, -1}}}

func (echo) Inputs() []tensor.Info  { return echoed }
func (echo) Outputs() []tensor.Info { return echoed }
func (echo) Close() error           { return nil }
func (echo) Run(_ context.Context, _ int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	out := inputs[0]
	out.Data = append([]byte(nil), out.Data...)
	return []tensor.Tensor{out}, nil
}

// transferred are the sizes in bytes whose round trips are measured, calls how often.
var transferred = []int64{4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

const calls = 60

// Transfer measures round trips to an instance over the loopback interface, with tensors of
// several sizes, and fits the delays. Both ways carry the same, so each gets half of what
// grows with the size.
func Transfer(ctx context.Context) (delay.Transfer, []delay.Sample, error) {
	handler, err := instance.NewServer(echo{}, instance.Options{Name: "echo", MaxBatch: 1, Logger: zerolog.Nop()})
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
	samples, err := roundTrips(ctx, client)
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

func roundTrips(ctx context.Context, client *upstream.OpenInference) (samples []delay.Sample, err error) {
	for _, size := range transferred {
		in := []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1, size / 4}, Data: make([]byte, size)}}
		for i := range calls + 3 {
			began := time.Now()
			if _, err := client.Infer(ctx, 1, in, echoed); err != nil {
				return nil, err
			}
			if i >= 3 { // The first ones make connections and buffers.
				samples = append(samples, delay.Sample{Bytes: size, Ms: float64(time.Since(began).Nanoseconds()) / 1e6})
			}
		}
	}
	return samples, nil
}
