package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// The times of a rate that is offered to the provider or Triton, of a search for the highest, and of
// the beginning of a rate, in which the provider may start instances.
const tritonTrial, tritonBudget, tritonWarm = 3 * time.Second, 90 * time.Second, 4 * time.Second

// overTriton compares a provider with Triton: the first model, and the whole GPU for each in turn.
func (b *bench) overTriton(ctx context.Context) error {
	o := peers.OnGPU{
		Device: b.card.Device().UUID, Model: b.Models[0], SLO: b.SLO, Settings: b.Settings,
		Trial: tritonTrial, Budget: tritonBudget, Warm: tritonWarm,
	}
	got, err := b.compare(ctx, o)
	name := "triton." + o.Model
	if got.Ours > 0 { // Also if Triton fails: it took minutes.
		b.report.Add(name+".ours_rps", got.Ours, "requests/s", fmt.Sprintf("99 %% within %v, behind a provider, on shares of the GPU", o.SLO))
	}
	if err != nil {
		return err
	}
	b.report.Add(name+".rps", got.Triton, "requests/s", fmt.Sprintf("%s; best of %d settings; %s", got.Best, got.Tried, peers.OnGPUWithout()))
	b.report.Add("rps_ratio.over_triton", got.Ours/got.Triton, "ratio", "at least 1 is the aim")
	return nil
}

// compare runs the comparison, or what a test has in its place.
func (b *bench) compare(ctx context.Context, o peers.OnGPU) (peers.Compared, error) {
	if b.Compare != nil {
		return b.Compare(ctx, o)
	}
	return o.Run(ctx, rig.Options{Program: b.Program, Log: b.Log})
}
