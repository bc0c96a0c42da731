// Package gpu measures how CUDA MPS shares a GPU: the multiply-adds of two processes
// with 30 and 70 % of one, alone and together, models' latency by share, what models lose
// beside each other and gain over turns, what a second instance of a model holds, and models behind a provider, also against Triton. It is not part of the
// product, which shares GPUs with the packages of gpu at the root. Begin with Run and Served.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
)

// Options are the options of the bench.
type Options struct {
	// Self is this program, which "bench gpu-worker" runs. Program is faas-infer, which measures
	// profiles.
	Self, Program string
	// Library is the driver's NVML library.
	Library nvml.Interface
	// Device is the index or UUID of the GPU.
	Device string
	// MPS is the MPS control program.
	MPS string
	// Parts are names of [Parts].
	Parts []string
	// Models are architectures of the zoo whose latency is measured by share. Batch is the number
	// of requests in one execution of the first of them where it works beside itself.
	Models []string
	Batch  int
	// Small are the models that share the GPU. SLO is their objective.
	Small []string
	SLO   time.Duration
	// Shares are in %, ascending.
	Shares []int
	// Each is how long each process works.
	Each time.Duration
	// Settings is the number of Triton's settings that may be measured.
	Settings int
	// Compare replaces [peers.OnGPU.Run] in tests.
	Compare func(context.Context, peers.OnGPU) (peers.Compared, error)
	// Log gets a message for each step.
	Log io.Writer
}

// small and large are the shares of the two processes.
const small, large = 30, 70

// parts are the parts of the bench in their order.
var parts = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"kernels", (*bench).kernels}, {"shares", (*bench).shares}, {"coexist", (*bench).coexist}, {"shared", (*bench).shared},
	{"weights", (*bench).weights},
	{"triton", (*bench).overTriton},
}

// Parts lists the names of the bench's parts.
func Parts() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// Run measures kernels and models. Its error wraps [gpu.ErrNone] if there is no GPU.
func Run(ctx context.Context, o Options) (_ *report.Report, err error) {
	card, err := shares.Open(ctx, shares.Options{GPU: o.Device, Flag: "--device", Library: o.Library, MPS: o.MPS, Self: o.Program})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, card.Close()) }()
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	i, d := card.Inventory(), card.Device()
	fmt.Fprintf(o.Log, "%s, %d multiprocessors, driver %s, CUDA %s\n", d.Model, d.SMs, i.Driver, i.CUDA)
	r := report.New("bench gpu", time.Now())
	describe(r, i, d)
	b := &bench{Options: o, card: card, dir: dir, report: r}
	for _, p := range parts {
		if !slices.Contains(o.Parts, p.name) {
			continue
		}
		if failed := p.run(b, ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.name, failed))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return r, err
}

// describe adds the properties of the GPU.
func describe(r *report.Report, i gpu.Inventory, d gpu.Device) {
	r.Add("gpus", float64(len(i.Devices)), "", "that the driver finds")
	r.Add("sms", float64(d.SMs), "", d.Model+", compute capability "+d.Capability)
	r.Add("memory_mib", float64(d.Memory>>20), "MiB", "of the GPU")
}

// bench is the state of one run.
type bench struct {
	Options
	card   *shares.Card
	dir    string
	report *report.Report
	// atReady is called when all processes of a run are ready, if it is not nil.
	atReady func() error
}

// job is work on a share.
type job struct {
	Work
	percent int
}

// kernels measures the GFLOPS of shares, alone and together.
func (b *bench) kernels(ctx context.Context) error {
	alone := map[int]float64{}
	for _, percent := range []int{small, large, 100} {
		out, err := b.run(ctx, job{Work{Each: b.Each}, percent})
		if err != nil {
			return err
		}
		alone[percent] = out[0].GFLOPS
		name := fmt.Sprintf("share_%d", percent)
		b.report.Add(name+".sms", float64(out[0].SMs), "", "multiprocessors that the process sees")
		b.report.Add(name+".alone_gflops", out[0].GFLOPS, "GFLOPS", "one process on the GPU")
	}
	both, err := b.run(ctx, job{Work{Each: b.Each}, small}, job{Work{Each: b.Each}, large})
	if err != nil {
		return err
	}
	sum := both[0].GFLOPS + both[1].GFLOPS
	for n, percent := range []int{small, large} {
		name := fmt.Sprintf("share_%d", percent)
		b.report.Add(name+".together_gflops", both[n].GFLOPS, "GFLOPS", "both processes at once")
		b.report.Add(name+".together_part", both[n].GFLOPS/sum, "", "of what both compute")
		b.report.Add(name+".kept", both[n].GFLOPS/alone[percent], "", "of what it computes alone")
	}
	b.report.Add("together_of_whole", sum/alone[100], "", "of what one process with all of the GPU computes")
	return nil
}

// file writes a model of the zoo, once, and returns its file.
func (b *bench) file(name string) (string, error) {
	file := filepath.Join(b.dir, name+".onnx")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	m, err := zoo.Make(name, 1)
	if err != nil {
		return "", err
	}
	return file, m.WriteFile(file)
}

// sizes are the batch sizes whose latency is measured by share.
var sizes = []int{1, 4, 16}

// shares measures models' latency by share, and how well the latency on a share follows from
// those on its neighbours.
func (b *bench) shares(ctx context.Context) error {
	sum, n := 0.0, 0
	for _, name := range b.Models {
		file, err := b.file(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.Log, "measuring %s on %v %%\n", name, b.Shares)
		found, err := b.card.Model(ctx, shares.Work{Model: file, Shares: b.Shares, Batches: sizes, TimesOnly: true}, func(int, int) {})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if found.Note != "" {
			fmt.Fprintln(b.Log, name+": "+found.Note)
		}
		p := &profiler.Profile{Measurements: found.Measurements}
		for _, m := range found.Measurements {
			at := fmt.Sprintf("%s.share_%d.batch_%d", name, m.GPU, m.Batch)
			b.report.Add(at+".median_ms", m.Median/1000, "ms", fmt.Sprintf("p95 %.2f ms, processor %.2f ms", m.P95/1000, m.CPU/1000))
		}
		if mean, shares := p.HeldOut(); shares > 0 {
			b.report.Add(name+".share.error_pct", 100*mean, "%", fmt.Sprintf("of %d times, each predicted from the next smaller and larger share", shares))
			sum, n = sum+mean*float64(shares), n+shares
		}
	}
	if n > 0 {
		b.report.Add("share.error_pct", 100*sum/float64(n), "%", "mean of all; at most 10 is the aim")
	}
	return nil
}
