package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

// daemon is the MPS daemon of one GPU.
type daemon struct {
	// running is nil while it does not run.
	running *device.MPSDaemon
	// silent is the number of checks in a row that it has not answered.
	silent int
	// tried is when it was started last, failed why it does not run.
	tried  time.Time
	failed error
	// serverless is why its server could not be started ahead, "" if it could or was not tried.
	serverless string
}

// maxSilent is the number of checks in a row that a daemon may leave unanswered. On a busy node one can
// fail, and a restart ends all instances of the GPU.
const maxSilent = 3

// findMPS looks for the control program, which comes with the driver, and looks again while it is missing and
// no GPU is given out. Whether GPUs are shared does not change while instances may have one whole, nor once the
// program was found.
func (a *Agent) findMPS() {
	if a.daemons != nil && (a.withoutMPS == "" || a.offers) {
		return
	}
	if a.daemons == nil {
		a.daemons = map[string]*daemon{}
	}
	before := a.withoutMPS
	a.withoutMPS = ""
	if _, err := exec.LookPath(cmp.Or(a.MPS.Program, device.MPSProgram)); err != nil && a.Share {
		a.withoutMPS = fmt.Sprintf("MPS is missing: %v", err)
	}
	if a.withoutMPS != before && a.withoutMPS != "" {
		a.Log.Warn().Str("reason", a.withoutMPS).Msg("no GPU can be shared (in a container, NVIDIA_DRIVER_CAPABILITIES must have \"utility\"); each goes to one instance")
	}
}

// share makes sure that each GPU that is shared has a daemon, and says where it listens. One whose daemon
// does not run is lost until it does: its instances cannot go on.
func (a *Agent) share(ctx context.Context, devices []gpu.Device) {
	var all sync.WaitGroup
	for n := range devices {
		d := &devices[n]
		if d.Unshareable != "" || d.Lost != "" {
			continue
		}
		one := a.daemons[d.UUID]
		if one == nil {
			one = &daemon{}
			a.daemons[d.UUID] = one
		}
		all.Go(func() {
			o := a.MPS.Of(d.UUID)
			if err := a.ensure(ctx, one, o); err != nil {
				d.Lost = err.Error()
				return
			}
			d.PipeDirectory = o.Pipes()
		})
	}
	all.Wait()
}

// ensure makes sure that a healthy daemon runs. It starts one that fails at most once per Every.
func (a *Agent) ensure(ctx context.Context, d *daemon, o device.MPSOptions) error {
	if d.running != nil {
		err := d.running.Healthy(ctx)
		if err == nil || ctx.Err() != nil {
			d.silent = 0
			a.serve(ctx, d, o)
			return nil
		}
		if d.silent++; d.silent < maxSilent && !d.running.Ended() {
			a.Log.Warn().Strs("devices", o.Devices).Err(err).Msg("the MPS daemon of a GPU does not answer")
			return nil
		}
		d.failed = errors.Join(err, d.running.Stop())
		d.running = nil
	}
	if d.failed != nil && time.Since(d.tried) < a.Every {
		return d.failed
	}
	d.tried, d.silent = time.Now(), 0
	if d.running, d.failed = device.StartMPS(ctx, o); d.failed != nil {
		return d.failed
	}
	a.Log.Info().Strs("devices", o.Devices).Str("pipes", o.Pipes()).Msg("the MPS daemon of a GPU serves")
	a.serve(ctx, d, o)
	if l := a.losses; l != nil {
		exited := d.running.Exited()
		l.watching.Go(func() {
			<-exited // At the latest when the agent stops it.
			l.wakeUp()
		})
	}
	return nil
}

// serve starts a daemon's server before the first instance needs it, and again after a fatal error ended it. A
// failure is logged once for each reason: the next instance starts the server then, and waits for it.
func (a *Agent) serve(ctx context.Context, d *daemon, o device.MPSOptions) {
	if a.User == 0 || ctx.Err() != nil {
		return
	}
	why := ""
	if err := d.running.Serve(ctx, a.User); err != nil && ctx.Err() == nil {
		if why = err.Error(); why != d.serverless {
			a.Log.Warn().Strs("devices", o.Devices).Err(err).Msg("the MPS server of a GPU was not started ahead; the first instance waits for it")
		}
	}
	d.serverless = why
}

// stop ends the daemons, all at once: a node may have many, and its pod has 30 s.
func (a *Agent) stop() error {
	var all sync.WaitGroup
	errs := make(chan error, len(a.daemons))
	for _, d := range a.daemons {
		if d.running != nil {
			all.Go(func() { errs <- d.running.Stop() })
		}
	}
	all.Wait()
	close(errs)
	var joined error
	for err := range errs {
		joined = errors.Join(joined, err)
	}
	return joined
}
