package latency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Devices finds models' times on shares of the nodes' GPUs.
type Devices interface {
	// Devices lists the nodes' GPUs, each kind once, by the names that profiles carry as their
	// machine; none if no node has a GPU for models.
	Devices() []string
	// Suits reports whether instances of the model in a file may have a GPU of a name: some are given out
	// to one container each, for models that take a whole one.
	Suits(file, device string) bool
	// Unable returns why the model in a file does not run on a GPU, as the end of a sentence; "" if it
	// does. only says that its function asks for a GPU.
	Unable(file string, only bool) string
	// Unusable returns why the model cannot run on a GPU of a name, as far as that is known without
	// trying it, such as a library that is missing; "" if it may.
	Unusable(file, device string) string
	// OnDevice measures the times on shares of a GPU if this machine has it, otherwise predicts
	// them from the operators of the model. Calls never overlap.
	OnDevice(ctx context.Context, file, device string, maxBatch int, until time.Duration) (*profiler.Profile, error)
}

// SizedDevices is implemented by Devices that find times with given sizes of free dimensions.
type SizedDevices interface {
	// SizedDevices returns Devices whose OnDevice works with these sizes.
	SizedDevices(Sizes) Devices
}

// devicesOf are the Devices for a function's sizes.
func (t *Finder) devicesOf(f *provider.Function) Devices {
	if sized, ok := t.Devices.(SizedDevices); ok && SizesOf(f) != (Sizes{}) {
		return sized.SizedDevices(SizesOf(f))
	}
	return t.Devices
}

// devices lists the GPUs on which the function's model may run.
func (t *Finder) devices(f *provider.Function, file string) []string {
	if t.Devices == nil || f.Inference.Device == annotation.DeviceCPU || t.Devices.Unable(file, f.Inference.Device == annotation.DeviceCUDA) != "" {
		return nil
	}
	return t.suitable(file)
}

// suitable lists the GPUs that suit a model.
func (t *Finder) suitable(file string) []string {
	return slices.DeleteFunc(t.Devices.Devices(), func(device string) bool { return !t.Devices.Suits(file, device) })
}

// Trial measures a model with a whole GPU of a name to itself, in an instance of its function. The
// profile's memory of the GPU is all that the GPU has.
type Trial func(ctx context.Context, device string) (*profiler.Profile, error)

// By returns a Finder that finds the times on GPUs by trials. Several may run at the same time, because none
// disturbs another and each may wait for a GPU.
func (t *Finder) By(trial Trial) *Finder {
	by := *t
	by.trial = trial
	return &by
}

// refuseDevice returns why the function's device cannot be used, nil if it can.
func (t *Finder) refuseDevice(f *provider.Function, file string) error {
	if f.Inference.Device != annotation.DeviceCUDA {
		return nil
	}
	refuse := func(why string) error {
		return &annotation.Error{Key: annotation.InferDevice, Value: f.Inference.Device, Why: why}
	}
	if t.Devices == nil {
		return refuse("this provider has no GPUs; leave the annotation out")
	}
	if why := t.Devices.Unable(file, true); why != "" {
		return refuse(why)
	}
	all := t.suitable(file)
	if len(all) == 0 {
		return refuse("no node has a GPU that models can use; leave the annotation out, or install NVIDIA's driver and check it with nvidia-smi")
	}
	var why []string
	for _, device := range all {
		if unusable := t.Devices.Unusable(file, device); unusable != "" {
			why = append(why, "on "+device+": "+unusable)
		}
	}
	if len(why) < len(all) {
		return nil
	}
	return refuse("the model cannot run on any GPU: " + strings.Join(why, "; "))
}

// mayCome reports whether a GPU for the function is only late: its deployment was accepted when there
// was one.
func (t *Finder) mayCome(f *provider.Function, file string) bool {
	return f.Restored && t.Devices != nil && t.Devices.Unable(file, true) == ""
}

// engineOn is the engine of profiles on a GPU.
func engineOn(t *Finder) string { return cmp.Or(t.EngineOn, t.Engine+" cuda") }

// deviceKey is [Finder.Key] for the model's profile on a GPU.
func (t *Finder) deviceKey(hash, device string, f *provider.Function) string {
	return withSizes(fmt.Sprintf("%s %s %s b≤%d", hash, engineOn(t), device, f.Inference.MaxBatch), f)
}

// storedOn returns the stored profile on a GPU, nil if there is none. It need not reach all
// batches that the function needs.
func (t *Finder) storedOn(hash, device string, f *provider.Function) *profiler.Profile {
	p, err := t.Profiles.Profile(t.deviceKey(hash, device, f))
	if err != nil || !p.Usable(engineOn(t), device) || predicted(p) && p.Longest != t.LongestOn {
		return nil
	}
	return p
}

// join returns p, which may be nil, with the stored profiles on the GPUs on which the model may
// run, and lists the GPUs without a profile that reaches the batches that the function needs.
func (t *Finder) join(f *provider.Function, hash, file string, p *profiler.Profile) (joined *profiler.Profile, missing []string) {
	for _, device := range t.devices(f, file) {
		on := t.storedOn(hash, device, f)
		if on == nil || !covers(on, f.Inference.MaxBatch, f.Inference.SLO/2) {
			missing = append(missing, device)
		}
		if on != nil {
			p = p.With(on)
		}
	}
	return p, missing
}

// complete finds the missing profiles on GPUs, stores them and returns p with all. A GPU on
// which it cannot find the times is left out and logged, and the profile's LeftOut says so. If no
// times are known then, this is the error.
func (t *Finder) complete(ctx context.Context, f *provider.Function, hash, file string, p *profiler.Profile) (*profiler.Profile, error) {
	find := func(ctx context.Context) (string, *profiler.Profile, error) {
		joined, missing := t.join(f, hash, file, p) // Another call may just have found some.
		var failed []error
		for _, device := range missing {
			began, log := time.Now(), t.Logger.With().Str("function", f.Name).Str("gpu", device).Logger()
			found, err := t.onDevice(ctx, f, hash, file, device)
			if ctx.Err() != nil {
				return "", nil, ctx.Err()
			}
			if errors.Is(err, ErrFollowing) { // The leader finds the rest.
				if joined == nil {
					return "", nil, err
				}
				break
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("on %s: %w", device, err))
				log.Warn().Err(err).Msg("could not find the model's times on the GPU; it is not used")
				continue
			}
			log.Info().Dur("took_ms", time.Since(began)).Int("largest_batch", found.MaxBatch()).Ints("shares", found.DeviceShares()).Msg("found the model's times on the GPU")
			t.keep(f, t.deviceKey(hash, device, f), found)
			joined = joined.With(found)
		}
		why := errors.Join(failed...)
		switch {
		case joined == nil || why == nil:
			return "", joined, why
		case joined == p: // The caller's profile stays as it is.
			own := *p
			joined = &own
		}
		joined.LeftOut = strings.Join(strings.Split(why.Error(), "\n"), "; ")
		return "", joined, nil
	}
	var err error
	if t.trial != nil { // The instance does it.
		_, p, err = find(ctx)
	} else {
		_, p, err = t.measuring.find(ctx, f.Name, t.Models.Bytes(file), find)
	}
	return p, err
}

// onDevice finds the times on one GPU.
func (t *Finder) onDevice(ctx context.Context, f *provider.Function, hash, file, device string) (*profiler.Profile, error) {
	if why := t.Devices.Unusable(file, device); why != "" {
		return nil, errors.New(why)
	}
	if t.trial != nil {
		found, err := t.trial(ctx, device)
		if err != nil {
			return nil, err
		}
		found.Model, found.Engine, found.Machine = hash, engineOn(t), device
		return found, found.Validate()
	}
	found, err := t.devicesOf(f).OnDevice(ctx, file, device, f.Inference.MaxBatch, f.Inference.SLO/2)
	if err == nil && !found.Usable(engineOn(t), device) {
		err = fmt.Errorf("the profile is not valid or is of another GPU: %s on %s", found.Engine, found.Machine)
	}
	return found, err
}

// withDevices completes the result of finding a profile on the CPU, p, with those on GPUs. If
// the function cannot serve without them, or if wait is set, it finds them first. Otherwise p
// with what is known becomes provisional and Refine finds the rest.
func (t *Finder) withDevices(ctx context.Context, f *provider.Function, hash, file string, p *profiler.Profile, wait bool) (*profiler.Profile, error) {
	joined, missing := t.join(f, hash, file, p)
	if len(missing) == 0 || !t.Leading() {
		return joined, nil
	}
	if wait || t.Rules.Hopeless(f, t.Rules.Promised(f, joined)) != nil {
		return t.complete(ctx, f, hash, file, p)
	}
	later := *joined
	later.Provisional = true
	return &later, nil
}

// early finds the times on GPUs before the full ones on the CPU, which take minutes on a machine
// of many cores. p is a sketch on the CPU, nil if there is none. The result is provisional. It is
// nil if the function cannot serve with it, or if nothing was missing or found.
func (t *Finder) early(ctx context.Context, f *provider.Function, file string, p *profiler.Profile) *profiler.Profile {
	hash, err := t.Models.Hash(file)
	if err != nil || p == nil {
		return nil
	}
	_, missing := t.join(f, hash, file, nil)
	if len(missing) == 0 || !t.Leading() {
		return nil
	}
	joined, err := t.complete(ctx, f, hash, file, p)
	if err != nil || len(joined.DeviceShares()) == 0 {
		return nil
	}
	if _, still := t.join(f, hash, file, nil); len(still) == len(missing) {
		return nil // Whoever asks again would get no further.
	}
	out := *joined
	out.Provisional = true
	if !t.serves(f, &out) {
		return nil
	}
	return &out
}

// onlyDevices is Profile for a function that runs on GPUs only.
func (t *Finder) onlyDevices(ctx context.Context, f *provider.Function, hash, file string, alone bool) (prepared string, p *profiler.Profile, err error) {
	if err := t.refuseDevice(f, file); err != nil {
		return "", nil, err
	}
	p, missing := t.join(f, hash, file, nil)
	if len(missing) > 0 && (t.Leading() || alone && t.trial == nil) {
		p, err = t.complete(ctx, f, hash, file, nil)
	}
	switch {
	case err != nil:
		return "", nil, err
	case p == nil:
		return "", nil, ErrFollowing
	}
	prepared, err = t.Ready(ctx, f, file)
	return prepared, p, err
}
