package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/gpu/device"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/cuda"
	benchgpu "github.com/faas-infer/faas-infer/lab/gpu"
	"github.com/faas-infer/faas-infer/lab/gpu/trial"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// newGPUBenchCommand returns "bench gpu".
func newGPUBenchCommand() *cobra.Command {
	o := benchgpu.Options{
		Device: "0", MPS: device.MPSProgram, Parts: benchgpu.Parts(), Models: []string{"resnet-50", "mobilenet", "bert-v1"}, Batch: 8,
		Small: []string{"mobilenet", "lstm-2365", "textcnn-69", "resnet-20", "bert-v1"}, SLO: 50 * time.Millisecond,
		Shares: []int{10, 20, 30, 40, 60, 80, 100}, Each: 2 * time.Second, Settings: 12,
	}
	c := benchCommand(&cobra.Command{
		Use:   "gpu",
		Short: "Measure how CUDA MPS shares a GPU, and what models gain by shares",
		Long: `gpu reads the machine's GPUs from NVIDIA's driver, starts its own MPS control daemon, and
measures in parts:

  kernels  what processes with 30, 70 and 100 % of one GPU compute, alone and together
  shares   the latency of models by share and batch, and how well the latency on a share
           follows from those on its neighbours
  coexist  what a model with a quarter of the GPU loses beside three others
  shared   how much several small models answer at the same time on equal shares, against the
           same models with the whole GPU in turn
  weights  what a second instance of each model holds of the GPU's memory, with the first
           one's weights and with its own
  triton   the highest rate of the first model within the SLO behind a provider, against that
           of Triton on the same GPU. Triton is NVIDIA's wheel on PyPI. Its model runs in its
           Python backend with onnxruntime-gpu, since the wheel has no ONNX Runtime backend. A
           search over instances, largest and preferred batch and delay tunes its batching

gpu needs an ONNX Runtime library built with CUDA ("make onnxruntime-cuda"). Without a GPU it
ends with an error. Nothing else should use the GPU.`,
		Example: `  faas-infer-lab bench gpu
  faas-infer-lab bench gpu --device 1 --parts shares --models resnet-50 --shares 25,50,100 --json`,
	}, func(ctx context.Context, r rig.Options) (_ *report.Report, err error) {
		slices.Sort(o.Shares)
		if o.Self, err = os.Executable(); err != nil {
			return nil, err
		}
		o.Program, o.Log, o.Library = r.Program, r.Log, nvml.New()
		return benchgpu.Run(ctx, o)
	})
	c.PreRunE = func(*cobra.Command, []string) error { return checkGPUBench(o) }
	f := c.Flags()
	f.StringVar(&o.Device, "device", o.Device, "index or UUID of the GPU")
	f.StringVar(&o.MPS, "mps-control", o.MPS, "MPS control program")
	f.StringSliceVar(&o.Parts, "parts", o.Parts, "parts to run")
	f.StringSliceVar(&o.Models, "models", o.Models, "architectures of faas-infer model make whose latency is measured")
	f.IntVar(&o.Batch, "batch", o.Batch, "requests in one execution of the first model beside itself")
	f.StringSliceVar(&o.Small, "small", o.Small, "architectures that share the GPU")
	f.DurationVar(&o.SLO, "slo", o.SLO, "latency objective of those, and of the model behind Triton")
	f.IntSliceVar(&o.Shares, "shares", o.Shares, "shares of the GPU, in %")
	f.DurationVar(&o.Each, "each", o.Each, "how long each process works")
	f.IntVar(&o.Settings, "triton-settings", o.Settings, "settings of Triton to measure, about a minute each")
	return c
}

// checkGPUBench refuses options with which nothing could be measured, naming the flag.
func checkGPUBench(o benchgpu.Options) error {
	if o.Batch < 1 || o.Each <= 0 || o.SLO <= 0 {
		return errors.New("--batch, --each and --slo must be positive")
	}
	if o.Settings < 1 {
		return errors.New("--triton-settings must be at least 1")
	}
	if len(o.Shares) == 0 || slices.Min(o.Shares) < 1 || slices.Max(o.Shares) > 100 {
		return errors.New("--shares must be one or more numbers from 1 to 100 (%)")
	}
	if len(o.Models) == 0 {
		return errors.New("--models must have one or more architectures")
	}
	for _, part := range o.Parts {
		if !slices.Contains(benchgpu.Parts(), part) {
			return fmt.Errorf("--parts has %q; the parts are %s", part, strings.Join(benchgpu.Parts(), ", "))
		}
	}
	return nil
}

// newGPUServedCommand returns "bench gpu-served".
func newGPUServedCommand() *cobra.Command {
	s := benchgpu.Served{
		Models: []string{"resnet-50", "bert-v1", "mobilenet"}, SLO: 50 * time.Millisecond, Settle: 2 * time.Minute, Ramp: 10 * time.Second, Hold: 10 * time.Second, Colds: 5, Gap: 8 * time.Second,
	}
	var rates []string
	c := benchCommand(&cobra.Command{
		Use:   "gpu-served",
		Short: "Measure models behind a provider that shares a GPU",
		Long: `gpu-served starts a provider on this machine, deploys models with an objective, and offers each
a rising and then a steady open-loop load, all at the same time. It reports the requests within
the objective and the shares that the instances hold, and how long the first model takes from
zero instances to an answer.`,
		Example: `  faas-infer-lab bench gpu-served
  faas-infer-lab bench gpu-served --models resnet-50 --rates 1000 --slo 30ms --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		s.Rates = nil
		for _, text := range rates {
			rate, err := strconv.ParseFloat(text, 64)
			if err != nil || !(rate > 0) {
				return nil, fmt.Errorf("--rates has %q; each must be a number of requests/s above 0", text)
			}
			s.Rates = append(s.Rates, rate)
		}
		if len(s.Rates) != len(s.Models) || len(s.Models) == 0 {
			return nil, fmt.Errorf("--rates has %d numbers for the %d models; give one for each", len(s.Rates), len(s.Models))
		}
		r := report.New("bench gpu-served", time.Now())
		return r, s.Run(ctx, o, r)
	})
	f := c.Flags()
	f.StringSliceVar(&s.Models, "models", s.Models, "architectures of faas-infer model make")
	f.StringSliceVar(&rates, "rates", []string{"1200", "600", "1500"}, "requests/s of each at the end of the rise")
	f.DurationVar(&s.SLO, "slo", s.SLO, "latency objective")
	f.DurationVar(&s.Settle, "settle", s.Settle, "time before the load, in which the provider measures the models on the GPU")
	f.DurationVar(&s.Ramp, "rise", s.Ramp, "how long the load rises")
	f.DurationVar(&s.Hold, "hold", s.Hold, "how long it stays")
	f.IntVar(&s.Colds, "colds", s.Colds, "starts of the first model from zero")
	f.DurationVar(&s.Gap, "gap", s.Gap, "time before each of those")
	f.StringSliceVar(&s.Arguments, "provider", nil, "arguments for the provider, such as --gpus,none")
	return c
}

// newGPUWorkerCommand returns "bench gpu-worker", of which "bench gpu" starts one per
// share.
func newGPUWorkerCommand() *cobra.Command {
	w := benchgpu.Work{Batch: 1, Each: time.Second}
	c := &cobra.Command{
		Use:   "gpu-worker",
		Short: "Work on a share of a GPU",
		Example: `  faas-infer-lab bench gpu-worker --each 3s </dev/null
  faas-infer-lab bench gpu-worker --model resnet-50.onnx --batch 8 --check </dev/null`,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Do(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&w.Model, "model", "", "model file (default: no model, a kernel of multiply-adds)")
	f.IntVar(&w.Batch, "batch", w.Batch, "requests in one execution")
	f.DurationVar(&w.Each, "each", w.Each, "how long to work")
	f.BoolVar(&w.CPU, "cpu", false, "run the model on the CPU")
	f.BoolVar(&w.Plain, "plain", false, "run without CUDA graphs")
	f.BoolVar(&w.Exhaustive, "exhaustive", false, "try all algorithms of convolutions at the start")
	f.BoolVar(&w.Standby, "standby", false, "warm the process up first, as one that stands by, and print the time from then to the first answer")
	f.StringVar(&w.Copies, "copies", "", "directory to keep the model in as it was optimised for the GPU")
	f.DurationVar(&w.Limit, "limit", 0, "count the executions that take no longer")
	f.BoolVar(&w.Check, "check", false, "compare the answers with the CPU's")
	return c
}

// newGPUTrialCommand returns "bench gpu-trial".
func newGPUTrialCommand() *cobra.Command {
	o := trial.Options{Device: "0", MPS: device.MPSProgram}
	var asJSON bool
	c := &cobra.Command{
		Use:   "gpu-trial",
		Short: "Try how the provider manages a GPU of this machine: shares, its MPS daemon, whole GPUs",
		Long: `gpu-trial lets the local backend start instances with shares of a GPU. It ends the
backend and opens it again, kills the MPS daemon, and gives out the GPU whole. It
checks what instances see of the GPU and prints how long each step takes. It ends
with an error that names each check that fails. Nothing else should use the GPU.`,
		Example: `  faas-infer-lab bench gpu-trial --json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Instance, o.Log, o.Library = []string{self, "bench", "gpu-instance"}, cmd.ErrOrStderr(), nvml.New()
			r, err := trial.Run(cmd.Context(), o)
			switch {
			case r == nil:
				return err
			case asJSON:
				return errors.Join(r.JSON(cmd.OutOrStdout()), err)
			}
			return errors.Join(r.Table(cmd.OutOrStdout()), err)
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.StringVar(&o.Device, "device", o.Device, "index or UUID of the GPU")
	f.StringVar(&o.MPS, "mps-control", o.MPS, "MPS control program")
	return c
}

// newGPUInstanceCommand returns "bench gpu-instance", an instance of "bench gpu-trial".
func newGPUInstanceCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "gpu-instance",
		Short:   "Compute on a share of a GPU until SIGTERM",
		Example: `  faas-infer-lab bench gpu-instance`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := sandbox.Enter(); err != nil {
				return err
			}
			b, err := cuda.OpenBurner()
			if err != nil {
				return err
			}
			const rounds = 20_000 // A few milliseconds on a whole GPU.
			return trial.Serve(cmd.Context(), cmd.OutOrStdout(), instance.AnnounceReady, b.SMs, func() error {
				_, err := b.Run(rounds)
				return err
			})
		},
	}
}
