package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// gpuModels finds models' times on the nodes' GPUs in child processes of this program. It
// implements [latency.Devices].
type gpuModels struct {
	*childModels
	// inventory lists this machine's GPUs and says how instances share them.
	inventory func() gpu.Inventory
	// others lists the inventories of the other nodes, nil if there are none.
	others func() []gpu.Inventory
}

// Devices implements [latency.Devices].
func (m gpuModels) Devices() (names []string) {
	all := []gpu.Inventory{m.inventory()}
	if m.others != nil {
		all = append(all, m.others()...)
	}
	for _, i := range all {
		for _, d := range i.Shareable() {
			names = append(names, shares.Machine(d.Model, i.Driver))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Unable implements [latency.Devices].
func (m gpuModels) Unable(file string) string {
	if engines.IsManifest(file) || forkjoin.IsCutting(file) {
		return "only an ONNX model that is not cut runs on a share of a GPU; leave the annotation out"
	}
	return ""
}

// OnDevice implements [latency.Devices]. It predicts the times if the database has operators of
// that GPU. Otherwise it measures the model, which takes about a minute. Instances on the GPU
// are slower meanwhile, and make the figures larger.
func (m gpuModels) OnDevice(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	_, p, err := m.profile(ctx, background, "predict", file, maxBatch, until, "--gpu-name", device)
	if err == nil || ctx.Err() != nil {
		return p, err
	}
	if err := asUnpredictable(err); !errors.Is(err, latency.ErrUnpredictable) {
		return nil, err
	}
	i := m.inventory()
	all := i.Shareable()
	at := slices.IndexFunc(all, func(d gpu.Device) bool { return shares.Machine(d.Model, i.Driver) == device })
	if at < 0 {
		return nil, fmt.Errorf("this machine has no %s, and %w", device, err)
	}
	// The child must not be idle work: it measures.
	_, p, err = m.profile(ctx, foreground, "model", file, maxBatch, until, "--device", "cuda", "--gpu", all[at].UUID, "--mps-pipe", i.On(all[at].UUID, 100, 0).PipeDirectory)
	return p, err
}

// GPUModels finds models' times on the nodes' GPUs. inventory lists this machine's, others those
// of the other nodes; others may be nil.
func (f *ProviderFlags) GPUModels(inventory func() gpu.Inventory, others func() []gpu.Inventory) latency.Devices {
	return gpuModels{f.childModels(), inventory, others}
}
