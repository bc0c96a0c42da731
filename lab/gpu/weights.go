package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// weights measures what a second instance of each model holds of the GPU's memory, beside one that has
// the same kept copy and so its weights, and beside one that has its own.
func (b *bench) weights(ctx context.Context) error {
	if code := b.Library.Init(); code != nvml.SUCCESS {
		return fmt.Errorf("initialise NVML: %s", b.Library.ErrorString(code))
	}
	defer b.Library.Shutdown()
	device, code := b.Library.DeviceGetHandleByUUID(b.card.Device().UUID)
	if code != nvml.SUCCESS {
		return fmt.Errorf("open GPU %s: %s", b.card.Device().UUID, b.Library.ErrorString(code))
	}
	var used uint64
	b.atReady = func() error {
		memory, code := device.GetMemoryInfo()
		if code != nvml.SUCCESS {
			return fmt.Errorf("memory of GPU %s: %s", b.card.Device().UUID, b.Library.ErrorString(code))
		}
		used = memory.Used
		return nil
	}
	defer func() { b.atReady = nil }()
	for _, name := range b.Models {
		file, err := b.file(name)
		if err != nil {
			return err
		}
		copies := filepath.Join(b.dir, name)
		if err := os.Mkdir(copies, 0o700); err != nil {
			return err
		}
		held := func(count int, copies string) (mib float64, out []Outcome, err error) {
			one := job{Work{Model: file, Batch: b.Batch, Each: b.Each, Copies: copies}, quarter}
			out, err = b.run(ctx, slices.Repeat([]job{one}, count)...)
			return float64(used) / (1 << 20), out, err
		}
		if _, _, err := held(1, copies); err != nil { // It writes the copy.
			return err
		}
		for _, dir := range []string{copies, ""} {
			alone, _, err := held(1, dir)
			if err != nil {
				return err
			}
			both, out, err := held(2, dir)
			if err != nil {
				return err
			}
			way, says := "apart", "each has its own weights"
			if dir != "" {
				w := out[1].Weights
				way, says = "shared", fmt.Sprintf("%d MiB of weights are there once; %s", w.Bytes>>20, w.Alone)
				if out[0].Weights.Imported == w.Imported {
					says = fmt.Sprintf("the weights are there twice; %s %s", w.Alone, w.Problem)
				}
			}
			b.report.Add("weights."+name+"."+way+".second_mib", both-alone, "MiB", "of a second instance's memory on the GPU: "+says)
		}
	}
	return nil
}
