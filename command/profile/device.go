package profile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
)

// The values of --device.
const (
	deviceCPU  = "cpu"
	deviceCUDA = "cuda"
)

// DeviceOptions are the flags that measure on a GPU.
type DeviceOptions struct {
	// Device is "cpu" or "cuda", GPU the GPU's index or UUID.
	Device, GPU string
	// Shares are in % of the GPU's SMs.
	Shares []int
	// Plain runs without CUDA graphs.
	Plain bool
	// Pipe is the directory of a running MPS daemon, "" for none.
	Pipe string
	// Timings prints how long the parts of the work take.
	Timings bool
	// given lists the flags above that were given.
	given func() []string
	// library is NVML, the driver's if nil. onGPU: an engine that takes the device as an option computes
	// on the GPU.
	library nvml.Interface
	onGPU   bool
}

func (o *DeviceOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.Device, "device", deviceCPU, "what to measure: cpu, or cuda for shares of an NVIDIA GPU")
	f.StringVar(&o.GPU, "gpu", "0", "with --device cuda: index or UUID of the GPU")
	f.IntSliceVar(&o.Shares, "shares", []int{10, 20, 40, 60, 80, 100}, "with --device cuda: shares of the GPU's multiprocessors in %")
	f.BoolVar(&o.Plain, "plain", false, "with --device cuda: run without CUDA graphs")
	f.BoolVar(&o.Timings, "timings", false, "with --device cuda: print to stderr how long the parts of the work take")
	f.StringVar(&o.Pipe, "mps-pipe", "", "with --device cuda: directory of a running MPS daemon's pipes (default: $CUDA_MPS_PIPE_DIRECTORY; otherwise one is started)")
	o.given = func() (names []string) {
		for _, name := range []string{"gpu", "shares", "plain", "timings", "mps-pipe"} {
			if f.Changed(name) {
				names = append(names, "--"+name)
			}
		}
		return names
	}
}

// check sorts the shares. An error names the invalid flag.
func (o *DeviceOptions) check() error {
	if o.Device != deviceCPU && o.Device != deviceCUDA {
		return fmt.Errorf("--device is %q; it must be %s or %s", o.Device, deviceCPU, deviceCUDA)
	}
	if o.Device == deviceCPU && o.given != nil {
		if names := o.given(); len(names) > 0 {
			return fmt.Errorf("%s: for a GPU only; give --device %s, too, or leave it out", strings.Join(names, ", "), deviceCUDA)
		}
	}
	slices.Sort(o.Shares)
	o.Shares = slices.Compact(o.Shares)
	if len(o.Shares) == 0 || o.Shares[0] < 1 || o.Shares[len(o.Shares)-1] > 100 {
		return fmt.Errorf("--shares is %v; each must be from 1 to 100 (%%)", o.Shares)
	}
	return nil
}

// open opens the GPU.
func (o *DeviceOptions) open(ctx context.Context) (*shares.Card, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	options := shares.Options{
		GPU: o.GPU, Library: o.library, Self: self, Whole: slices.Equal(o.Shares, []int{100}), Pipe: cmp.Or(o.Pipe, os.Getenv(shares.PipeEnv)),
	}
	if options.Library == nil {
		options.Library = nvml.New()
	}
	if o.Timings {
		options.Log = os.Stderr
	}
	return shares.Open(ctx, options)
}

// measureDevice measures the model on shares of a GPU.
func (o *Options) measureDevice(ctx context.Context, file string) (measured *profiler.Measured, err error) {
	if engines.IsManifest(file) {
		return o.measureWhole(ctx, file)
	}
	m, err := model.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if m, _, err = m.Sized(o.Shapes); err != nil {
		return nil, fmt.Errorf("--shapes: %w", err)
	}
	if _, err := m.Graph(1); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	hash, err := model.ContentHash(file)
	if err != nil {
		return nil, err
	}
	if file, err = filepath.Abs(file); err != nil {
		return nil, err
	}
	card, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, card.Close()) }()
	found, err := card.Model(ctx, shares.Work{Model: file, Shapes: o.Shapes, Shares: o.Shares, Batches: o.batches(), Until: o.Until, Plain: o.Plain},
		report.ProgressBar(os.Stderr, "measuring "+filepath.Base(file)+" on shares of "+card.Machine()))
	if err != nil {
		return nil, err
	}
	if found.Note != "" {
		fmt.Fprintln(os.Stderr, found.Note)
	}
	p := &profiler.Profile{
		Model: hash, Engine: shares.EngineName(), Machine: card.Machine(), Memory: found.Memory,
		Measurements: found.Measurements, MeasuredAt: time.Now(),
		Payloads: measurePayloads(ctx, Signature{m.Inputs(), m.Outputs()}),
	}
	return &profiler.Measured{Profile: p}, p.Validate()
}

// measureWhole measures a bundle that Python or a model server runs with the whole GPU. Its engine
// takes the GPU from the environment. The profile has one share, of 100 %, with all of the GPU's
// memory: nobody knows what the engine takes of it.
func (o *Options) measureWhole(ctx context.Context, manifest string) (measured *profiler.Measured, err error) {
	if !slices.Equal(o.Shares, []int{100}) {
		return nil, fmt.Errorf("%s: only ONNX models are measured on shares of a GPU, since the engine of this bundle takes a GPU by itself; measure it on a whole one with --shares 100", manifest)
	}
	card, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, card.Close()) }()
	for _, variable := range card.Environment(100) {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	own := *o
	own.Threads, own.Warm, own.onGPU = 1, "", true // A process that is warm has no GPU.
	if measured, err = own.measurePython(ctx, manifest); err != nil {
		return nil, err
	}
	p := measured.Profile
	p.Engine, p.Machine = shares.EngineName(), card.Machine()
	for k := range p.Measurements {
		p.Measurements[k].GPU, p.Measurements[k].DeviceMemory = 100, card.Device().Memory
	}
	return measured, p.Validate()
}

// newShareCommand returns the command of the child processes that have a share.
func newShareCommand() *cobra.Command {
	var c shares.Child
	var ops shares.OperatorsChild
	var uuid string
	command := &cobra.Command{
		Use:    "share",
		Short:  "Measure a model on the share of a GPU that this process has, and print one JSON object",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Held, c.Open, c.CPU, c.Peak = shares.Held(nvml.New(), uuid, os.Getpid()), shares.OpenEngine, processorTime, residentPeak
			c.Log = cmd.ErrOrStderr()
			var found any
			var err error
			if len(ops.Graphs) > 0 {
				ops.Batches, ops.Percent, ops.Open, ops.CPU, ops.Log = c.Batches, c.Percent, shares.OpenOperator, c.CPU, c.Log
				found, err = ops.Measure(cmd.Context())
			} else {
				found, err = c.Measure(cmd.Context())
			}
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(found)
		},
	}
	f := command.Flags()
	f.StringVar(&c.Model, "model", "", "the ONNX file")
	ShapesFlag(command.Flags(), &c.Shapes)
	f.IntSliceVar(&c.Batches, "batch", []int{1}, "batch sizes")
	f.DurationVar(&c.Until, "until", 0, "stop increasing the batch once one takes longer (0: never)")
	f.IntVar(&c.Percent, "gpu-share", 100, "the share in %")
	f.StringSliceVar(&ops.Graphs, "graphs", nil, "measure the operators of the graphs in these files instead of a model")
	f.StringVar(&ops.Known, "known", "", "file of operators' profiles that are not measured again")
	f.StringVar(&ops.Machine, "gpu-name", "", "the GPU's name in rows")
	f.StringVar(&uuid, "gpu", "", "UUID of the GPU")
	f.BoolVar(&c.Memory, "memory", false, "measure the memory of the GPU by batch")
	f.BoolVar(&c.Plain, "plain", false, "run without CUDA graphs")
	return command
}
