// Package gpu measures how CUDA MPS shares a GPU: the multiply-adds of two processes
// with 30 and 70 % of one, alone and together, and models' latency by share. It is not
// part of the product, which shares GPUs with the packages of gpu at the root. Begin with
// Run.
package gpu

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// Options are the options of the bench.
type Options struct {
	// Self is this program, which "bench gpu-worker" runs.
	Self string
	// Library is the driver's NVML library.
	Library nvml.Interface
	// Device is the index or UUID of the GPU.
	Device string
	// MPS is the MPS control program.
	MPS string
	// Models are architectures of the zoo. Batch is the number of requests in one
	// execution.
	Models []string
	Batch  int
	// Shares are in %, ascending.
	Shares []int
	// Each is how long each process works.
	Each time.Duration
	// Log gets a message for each step.
	Log io.Writer
}

// small and large are the shares of the two processes.
const small, large = 30, 70

// Run measures kernels and models. Its error wraps [gpu.ErrNone] if there is no GPU. With
// an ONNX Runtime library without CUDA it leaves the models out: models_measured is the
// number of measured models, and Log has the reasons for the others.
func Run(ctx context.Context, o Options) (_ *report.Report, err error) {
	i, err := device.Read(o.Library)
	if err != nil {
		return nil, fmt.Errorf("read the GPUs: %w", err)
	}
	if i, err = device.Only(i, []string{o.Device}); err != nil {
		return nil, fmt.Errorf("--device: %w", err)
	}
	i.Sharing = gpu.MPS
	if len(i.Shareable()) == 0 {
		return nil, fmt.Errorf("--device %s: %w to share: %s", o.Device, gpu.ErrNone, why(i, o.Device))
	}
	shared := i.Shareable()[0]
	dir, err := os.MkdirTemp("", "faas-infer-mps-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(o.Log, "%s, %d multiprocessors, driver %s, CUDA %s\n", shared.Model, shared.SMs, i.Driver, i.CUDA)
	daemon, err := device.StartMPS(ctx, device.MPSOptions{Program: o.MPS, Directory: dir, Devices: []string{shared.UUID}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopped := daemon.Stop(); err == nil {
			err = stopped
		}
	}()
	i.PipeDirectory = device.MPSOptions{Directory: dir}.Pipes()
	r := report.New("bench gpu", time.Now())
	describe(r, i, shared)
	b := &bench{Options: o, inventory: i, device: shared, dir: dir, report: r}
	if err := b.kernels(ctx); err != nil {
		return nil, err
	}
	return r, b.models(ctx)
}

// why returns the reason why the GPU of a name cannot be shared.
func why(i gpu.Inventory, name string) string {
	for _, d := range i.Devices {
		if d.UUID == name || strconv.Itoa(d.Index) == name {
			return d.Unshareable
		}
	}
	return ""
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
	inventory gpu.Inventory
	device    gpu.Device
	dir       string
	report    *report.Report
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

// models measures latency by share. It leaves out models that cannot run.
func (b *bench) models(ctx context.Context) error {
	measured := 0
	for _, name := range b.Models {
		m, err := zoo.Make(name, 1)
		if err != nil {
			return err
		}
		file := filepath.Join(b.dir, name+".onnx")
		if err := m.WriteFile(file); err != nil {
			return err
		}
		var whole float64
		for n := len(b.Shares) - 1; n >= 0; n-- {
			percent := b.Shares[n]
			out, err := b.run(ctx, job{Work{Model: file, Batch: b.Batch, Each: b.Each}, percent})
			if err != nil && n == len(b.Shares)-1 && ctx.Err() == nil {
				fmt.Fprintf(b.Log, "%s is left out: %v\n", name, err)
				break
			}
			if err != nil {
				return err
			}
			if whole == 0 {
				whole = out[0].Median
				measured++
			}
			at := fmt.Sprintf("%s.share_%d", name, percent)
			b.report.Add(at+".median_ms", out[0].Median, "ms", fmt.Sprintf("batch of %d", b.Batch))
			b.report.Add(at+".p99_ms", out[0].P99, "ms", "")
			b.report.Add(at+".slower", out[0].Median/whole, "", fmt.Sprintf("than with %d %%", b.Shares[len(b.Shares)-1]))
		}
	}
	b.report.Add("models_measured", float64(measured), "", "of "+strings.Join(b.Models, ", "))
	return nil
}
