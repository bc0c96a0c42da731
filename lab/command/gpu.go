package command

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/gpu/device"
	"github.com/faas-infer/faas-infer/instance"
	benchgpu "github.com/faas-infer/faas-infer/lab/gpu"
	"github.com/faas-infer/faas-infer/lab/gpu/trial"
)

// newGPUBenchCommand returns "bench gpu".
func newGPUBenchCommand() *cobra.Command {
	o := benchgpu.Options{
		Device: "0", MPS: device.MPSProgram, Models: []string{"mobilenet", "resnet-50", "bert"}, Batch: 8,
		Shares: []int{10, 20, 30, 50, 70, 100}, Each: 3 * time.Second,
	}
	var asJSON bool
	c := &cobra.Command{
		Use:   "gpu",
		Short: "Measure how CUDA MPS shares a GPU: two processes with 30 and 70 %, and latency by share",
		Long: `gpu reads the machine's GPUs from NVIDIA's driver, starts its own MPS control daemon,
and measures what processes with 30, 70 and 100 % of one GPU compute, alone and
together. Then it measures the latency of models by share. This part needs an ONNX
Runtime library built with CUDA; otherwise gpu says so and leaves the models out.
Without a GPU it ends with an error. Nothing else should use the GPU.`,
		Example: `  faas-infer-lab bench gpu
  faas-infer-lab bench gpu --device 1 --models resnet-50 --shares 25,50,100 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Batch < 1 || o.Each <= 0 {
				return errors.New("--batch and --each must be positive")
			}
			if len(o.Shares) == 0 || slices.Min(o.Shares) < 1 || slices.Max(o.Shares) > 100 {
				return errors.New("--shares must be one or more numbers from 1 to 100 (%)")
			}
			slices.Sort(o.Shares)
			if o.Self, err = os.Executable(); err != nil {
				return err
			}
			o.Log, o.Library = cmd.ErrOrStderr(), nvml.New()
			r, err := benchgpu.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return r.JSON(cmd.OutOrStdout())
			}
			return r.Table(cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.StringVar(&o.Device, "device", o.Device, "index or UUID of the GPU")
	f.StringVar(&o.MPS, "mps-control", o.MPS, "MPS control program")
	f.StringSliceVar(&o.Models, "models", o.Models, "architectures of faas-infer model make")
	f.IntVar(&o.Batch, "batch", o.Batch, "requests in one execution")
	f.IntSliceVar(&o.Shares, "shares", o.Shares, "shares of the GPU, in %")
	f.DurationVar(&o.Each, "each", o.Each, "how long each process works")
	return c
}

// newGPUWorkerCommand returns "bench gpu-worker", of which "bench gpu" starts one per
// share.
func newGPUWorkerCommand() *cobra.Command {
	w := benchgpu.Work{Batch: 1, Each: time.Second}
	c := &cobra.Command{
		Use:     "gpu-worker",
		Short:   "Work on a share of a GPU",
		Example: `  faas-infer-lab bench gpu-worker --each 3s`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.Do(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&w.Model, "model", "", "model file (default: no model, a kernel of multiply-adds)")
	f.IntVar(&w.Batch, "batch", w.Batch, "requests in one execution")
	f.DurationVar(&w.Each, "each", w.Each, "how long to work")
	f.BoolVar(&w.CPU, "cpu", false, "run the model on the CPU")
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
			b, err := benchgpu.OpenBurner()
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
