package children

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// GPUs finds models' times on the nodes' GPUs. inventory lists this machine's GPUs, others those of the
// other nodes; others may be nil.
func (m *Models) GPUs(inventory func() gpu.Inventory, others func() []gpu.Inventory) latency.Devices {
	return gpuModels{Models: m, inventory: inventory, others: others, installed: cuda.Installed}
}

// gpuModels finds models' times on the nodes' GPUs in child processes of this program. It
// implements [latency.Devices].
type gpuModels struct {
	*Models
	// inventory lists this machine's GPUs and says how instances share them.
	inventory func() gpu.Inventory
	// others lists the inventories of the other nodes, nil if there are none.
	others func() []gpu.Inventory
	// installed is [cuda.Installed].
	installed func() (version int, err error)
	// sizes are those of models' free dimensions, as the deployment states them.
	sizes latency.Sizes
}

// SizedDevices implements [latency.SizedDevices].
func (m gpuModels) SizedDevices(sizes latency.Sizes) latency.Devices {
	m.sizes = sizes
	return m
}

// sized are the models with the deployment's sizes.
func (m gpuModels) sized() sizedModels { return sizedModels{m.Models, m.sizes} }

// Devices implements [latency.Devices].
func (m gpuModels) Devices() (names []string) {
	all := []gpu.Inventory{m.inventory()}
	if m.others != nil {
		all = append(all, m.others()...)
	}
	for _, i := range all {
		for _, d := range usable(i) {
			names = append(names, i.KindOf(&d))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Suits implements [latency.Devices].
func (m gpuModels) Suits(file, device string) bool {
	return !gpu.IsDedicated(device) || engines.IsManifest(file)
}

// usable lists the GPUs on which models run: those that are shared, and those that an instance has
// as a whole, such as without MPS. A MIG instance counts as a share of the GPU whose model it has.
func usable(i gpu.Inventory) []gpu.Device {
	return slices.DeleteFunc(i.Usable(), func(d gpu.Device) bool { return d.Lost != "" })
}

// Unable implements [latency.Devices]. Only ONNX models that are not cut run on shares. Another engine
// has a whole GPU if its function asks for one: its times are not known by share.
func (m gpuModels) Unable(file string, only bool) string {
	switch {
	case bundle.IsCutting(file):
		return "a model that is cut runs on cores; leave the annotation out"
	case !engines.IsManifest(file):
		return ""
	case !only:
		return "only an ONNX model shares GPUs; com.openfaas.infer.device: cuda gives another engine a whole one"
	}
	b, err := bundle.OpenDir(filepath.Dir(file))
	if err == nil && b.Manifest.Engine == bundle.EngineTensorFlow {
		return "the engine tensorflow has TensorFlow's build for CPUs; use the engine python with tensorflow[and-cuda] in its requirements, or leave the annotation out"
	}
	return ""
}

// Unusable implements [latency.Devices]. Of other machines it knows the memory of their GPUs only: their
// instances have libraries of their own.
func (m gpuModels) Unusable(file, device string) string {
	own, most := m.inventory(), int64(0)
	all := []gpu.Inventory{own}
	if m.others != nil {
		all = append(all, m.others()...)
	}
	for _, i := range all {
		for _, d := range usable(i) {
			if i.KindOf(&d) == device {
				most = max(most, d.Memory)
			}
		}
	}
	if least := Weights(file); most > 0 && least > most {
		return fmt.Sprintf("the model's weights alone need %d MiB of memory, and the GPU has %d MiB", least>>20, most>>20)
	}
	if engines.IsManifest(file) && m.others == nil { // On a cluster it is measured in an instance.
		if _, err := m.wholeOf(device); err != nil {
			return err.Error()
		}
	}
	if !slices.ContainsFunc(usable(own), func(d gpu.Device) bool { return own.KindOf(&d) == device }) {
		return ""
	}
	if engines.IsManifest(file) && !engines.Of(file).TakesDevice {
		return "" // The bundle brings its own libraries.
	}
	needs, err := m.installed()
	if err != nil {
		return err.Error()
	}
	major, _, _ := strings.Cut(own.CUDA, ".")
	if has, err := strconv.Atoi(major); err == nil && has < needs {
		return fmt.Sprintf("NVIDIA's driver %s supports CUDA up to %s, and ONNX Runtime's library is built for CUDA %d: install a newer driver", own.Driver, own.CUDA, needs)
	}
	return ""
}

// OnDevice implements [latency.Devices]. It measures the model if this machine has that GPU, which
// takes about half a minute. Instances on the GPU are slower meanwhile, and make the figures larger.
// Otherwise it predicts the times if the database has operators of that GPU. Measured times are
// better: kernels that follow each other in a graph take less time than each alone.
func (m gpuModels) OnDevice(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	i := m.inventory()
	all := usable(i)
	at := slices.IndexFunc(all, func(d gpu.Device) bool { return d.Parent == "" && i.KindOf(&d) == device })
	if engines.IsManifest(file) {
		return m.whole(ctx, file, device, maxBatch, until)
	}
	if at >= 0 { // The child must not be idle work: it measures.
		_, p, err := m.sized().profile(ctx, Foreground, "model", file, maxBatch, until, measureOn(i, &all[at])...)
		return p, err
	}
	_, p, err := m.sized().profile(ctx, Background, "predict", file, maxBatch, until, gpuName, device)
	if err == nil {
		return p, nil
	}
	if err = asUnpredictable(err); errors.Is(err, latency.ErrUnpredictable) {
		err = fmt.Errorf("this machine has no %s as a whole to measure, and %w; import operators that were measured on such a GPU", device, err)
	}
	return nil, err
}

// whole measures a model of another engine with a GPU of this machine to itself. Its instances hold
// all memory of a GPU of this kind, so nothing else starts there.
func (m gpuModels) whole(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error) {
	most, err := m.wholeOf(device)
	if err != nil {
		return nil, err
	}
	arguments := []string{deviceFlag, "cuda", "--gpu", most.UUID, "--shares", "100", "--threads", "1"}
	if !most.Whole {
		arguments = append(arguments, "--mps-pipe", m.inventory().On(most.UUID, 100, 0).PipeDirectory)
	}
	_, p, err := m.sized().profile(ctx, Foreground, "model", file, maxBatch, until, arguments...)
	if err != nil {
		return nil, err
	}
	p.HoldDevice(most.Memory)
	return p, nil
}

// wholeOf is this machine's GPU of a kind that has the most memory, MIG instances aside.
func (m gpuModels) wholeOf(device string) (gpu.Device, error) {
	i := m.inventory()
	all := slices.DeleteFunc(usable(i), func(d gpu.Device) bool { return d.Parent != "" || i.KindOf(&d) != device })
	if len(all) == 0 {
		return gpu.Device{}, fmt.Errorf("the provider's machine has no %s as a whole, and only there can a model be measured that ONNX Runtime does not run; leave the annotation out", device)
	}
	return slices.MaxFunc(all, func(a, b gpu.Device) int { return cmp.Compare(a.Memory, b.Memory) }), nil
}

// measureOn are the arguments that measure on a GPU: by shares of the daemon that serves instances,
// or as a whole without one. A second daemon would take turns with the first.
func measureOn(i gpu.Inventory, d *gpu.Device) []string {
	arguments := []string{deviceFlag, "cuda", "--gpu", d.UUID, "--shares"}
	if d.Whole {
		return append(arguments, "100")
	}
	return append(arguments, deploymentShares, "--mps-pipe", i.On(d.UUID, 100, 0).PipeDirectory)
}

// deploymentShares are the shares in % that are measured while a function waits for its GPU. The
// times on the others lie between them.
const deploymentShares = "10,20,50,100"
