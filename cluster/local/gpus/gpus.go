// Package gpus manages the GPUs of this machine for its instances: which there are, which are
// shared through MPS and which are given out whole, what environment an instance gets, and which
// are lost. It runs one MPS control daemon for each shared GPU, so that a GPU that fails does not
// take the others' instances with it. Like instances, daemons outlive the provider, and the next
// one adopts them. Package gpu places shares; this one does not. Begin reading at [Open].
package gpus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

// Options say which GPUs instances use.
type Options struct {
	// Library is the driver's NVML library; nil for a machine whose GPUs are not used.
	Library nvml.Interface
	// Names are indexes or UUIDs of GPUs or MIG instances; all if empty.
	Names []string
	// Dir holds the directories of MPS daemons. The paths of sockets below it must be short.
	Dir string
	// MPS is the MPS control program, [device.MPSProgram] if empty.
	MPS string
	// Every is the time between two checks of a device or a daemon, 5 s if 0.
	Every time.Duration
	// Beside is the memory in bytes that processes other than instances take of each shared GPU, such as
	// one that stands by. Instances cannot have it.
	Beside int64
	// Failed is called if instances on a device cannot go on: it is lost, or its daemon has died. It
	// must not call back.
	Failed func(device, why string)
	Logger zerolog.Logger
}

const defaultEvery = 5 * time.Second

// GPUs are those of this machine. Its methods are safe for concurrent use.
type GPUs struct {
	options   Options
	log       zerolog.Logger
	inventory gpu.Inventory
	daemons   map[string]*daemon

	cancel context.CancelFunc
	work   sync.WaitGroup

	// mu guards what follows, and inventory and daemons, which change once if the driver comes late.
	mu sync.Mutex
	// lost says why a device cannot be used any more, and paused why not for the moment.
	lost, paused map[string]string
}

// Open reads the inventory, and starts or adopts the daemons. A machine without a driver or a GPU
// has none, which is no error: it looks again from time to time, as the driver may be loaded late. It is an error if the driver fails although GPUs are named, or if
// there is no GPU of a name. GPUs for which no daemon can run are given out whole.
func Open(ctx context.Context, o Options) (*GPUs, error) {
	o.Every = cmp.Or(o.Every, defaultEvery)
	g := &GPUs{options: o, log: o.Logger.With().Str("component", "cluster/local/gpus").Logger(), daemons: map[string]*daemon{}, lost: map[string]string{}, paused: map[string]string{}}
	g.inventory.Sharing = gpu.None
	if o.Library == nil {
		return g, nil
	}
	background, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	i, err := device.Read(o.Library)
	switch {
	case err == nil:
		err = g.begin(ctx, background, i)
	case len(o.Names) > 0:
		err = fmt.Errorf("--gpus %s: %w; leave the flag out to start without GPUs", strings.Join(o.Names, ","), err)
	default:
		if !errors.Is(err, gpu.ErrNone) {
			g.log.Warn().Err(err).Msg("this machine's GPUs are not used")
		}
		g.work.Go(func() { g.await(background) })
		return g, nil
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return g, nil
}

// begin uses the GPUs of an inventory from now on. Its daemons are started or adopted within ctx, and
// watched until background ends.
func (g *GPUs) begin(ctx, background context.Context, i gpu.Inventory) error {
	if i.Reason != "" {
		g.log.Error().Str("reason", i.Reason).Msg("a GPU is lost and is not used")
	}
	i, err := device.Select(i, g.options.Names)
	if err != nil {
		return err
	}
	i = usable(i)
	daemons := g.share(ctx, &i)
	g.mu.Lock()
	g.inventory, g.daemons = i, daemons
	g.mu.Unlock()
	g.work.Go(func() { g.watch(background) })
	for _, d := range daemons {
		g.work.Go(func() { g.keep(background, d) })
	}
	return nil
}

// await looks for GPUs until there are some or ctx ends.
func (g *GPUs) await(ctx context.Context) {
	tick := time.Tick(g.options.Every)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		i, err := device.Read(g.options.Library)
		if err != nil {
			continue
		}
		if err := g.begin(ctx, ctx, i); err != nil {
			g.log.Error().Err(err).Msg("the GPUs that came late are not used")
		}
		return
	}
}

// usable says how each device is given out: in shares, or whole if it cannot be shared. A GPU that is
// divided into MIG instances is left out in favour of these.
func usable(i gpu.Inventory) gpu.Inventory {
	i.Devices = slices.DeleteFunc(slices.Clone(i.Devices), func(d gpu.Device) bool { return d.Divided })
	for k := range i.Devices {
		i.Devices[k].Whole = i.Devices[k].Unshareable != ""
	}
	i.Sharing = gpu.MPS
	return i
}

// share starts or adopts the daemons of all devices that are to be shared, at once. A device without
// one is given out whole. It returns the daemons by device.
func (g *GPUs) share(ctx context.Context, i *gpu.Inventory) map[string]*daemon {
	daemons := map[string]*daemon{}
	var all sync.WaitGroup
	failed := make([]error, len(i.Devices))
	for k, d := range i.Devices {
		if d.Whole {
			continue
		}
		daemon := g.daemonOf(d.UUID)
		daemons[d.UUID] = daemon
		all.Go(func() { failed[k] = daemon.ensure(ctx) })
	}
	all.Wait()
	for k := range failed {
		d := &i.Devices[k]
		if failed[k] != nil {
			delete(daemons, d.UUID)
			d.Whole, d.Unshareable = true, failed[k].Error()
		}
		if !d.Whole {
			d.Memory = max(0, d.Memory-g.options.Beside)
		}
		g.log.Info().Str("device", d.UUID).Str("model", d.Model).Int64("memory_mib", d.Memory>>20).Int("sms", d.SMs).Bool("shared", !d.Whole).Str("reason", d.Unshareable).Msg("a GPU for instances")
	}
	return daemons
}

// daemonOf returns the daemon of a device, which may not run yet.
func (g *GPUs) daemonOf(uuid string) *daemon {
	o := device.MPSOptions{Program: g.options.MPS, Directory: g.options.Dir}.Of(uuid)
	return &daemon{device: uuid, options: o, record: filepath.Join(o.Directory, "daemon.json")}
}

// watch reports lost devices.
func (g *GPUs) watch(ctx context.Context) {
	err := device.Watch(ctx, g.options.Library, device.WatchOptions{
		Devices: g.state().Devices, Every: g.options.Every,
		Lost: func(uuid, why string) {
			g.mu.Lock()
			g.lost[uuid] = why
			g.mu.Unlock()
			g.log.Error().Str("device", uuid).Str("reason", why).Msg("a GPU is lost; its instances are stopped")
			g.fail(uuid, "its GPU "+uuid+" is lost: "+why)
		},
		Note: func(uuid, what string) { g.log.Warn().Str("device", uuid).Msg(what) },
	})
	if err != nil {
		g.log.Error().Err(err).Msg("nobody notices when a GPU is lost")
	}
}

func (g *GPUs) fail(uuid, why string) {
	if g.options.Failed != nil {
		g.options.Failed(uuid, why)
	}
}

// Present reports whether the machine has GPUs that instances use.
func (g *GPUs) Present() bool { return len(g.state().Devices) > 0 }

// state is the inventory as it was read.
func (g *GPUs) state() gpu.Inventory {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inventory
}

// daemon returns the daemon of a device, nil if it has none.
func (g *GPUs) daemon(uuid string) *daemon {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.daemons[uuid]
}

// Inventory returns the devices, how they are given out, which are lost or paused, and where their
// daemons listen.
func (g *GPUs) Inventory() gpu.Inventory {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.inventory
	i.Devices = slices.Clone(i.Devices)
	for k := range i.Devices {
		d := &i.Devices[k]
		d.Lost = cmp.Or(g.lost[d.UUID], g.paused[d.UUID])
		if own := g.daemons[d.UUID]; own != nil {
			d.PipeDirectory = own.options.Pipes()
		}
	}
	return i
}

// Stale is [GPUs.Why] for an instance of an earlier provider: the daemon with which it began may have
// ended, too, and its GPU may be given out whole since.
func (g *GPUs) Stale(s *cluster.InstanceSpec) string {
	for _, d := range g.Inventory().Rooms(nil) {
		if s.Kind == cluster.Model && d.UUID == s.Device() && d.Whole && s.Config.GPU <= d.Total.GPU-cluster.ShareStep {
			return "its GPU " + d.UUID + " is not shared any more"
		}
	}
	if own := g.daemon(s.Device()); s.Kind == cluster.Model && own != nil && own.fresh {
		return "the MPS daemon of its GPU ended while no provider ran"
	}
	return g.Why(s)
}

// Why returns why an instance that runs cannot go on, "" if it can: its device is lost or not among
// those that are used, or its daemon is being restarted.
func (g *GPUs) Why(s *cluster.InstanceSpec) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, uuid := range s.Devices {
		switch {
		case !slices.ContainsFunc(g.inventory.Devices, func(d gpu.Device) bool { return d.UUID == uuid }):
			return "its GPU " + uuid + " is not there or not used any more"
		case g.lost[uuid] != "":
			return "its GPU " + uuid + " is lost: " + g.lost[uuid]
		case s.Kind == cluster.Model && g.paused[uuid] != "":
			return "its GPU " + uuid + " cannot be used: " + g.paused[uuid]
		}
	}
	return ""
}

// Env returns the environment, as NAME=value, of an instance with a share of its device, or of a
// process with its devices to itself. It hides the other GPUs, and all if it has none. On a machine
// without GPUs it is empty.
func (g *GPUs) Env(s *cluster.InstanceSpec) []string {
	var env map[string]string
	switch d := s.Device(); {
	case !g.Present():
		return nil
	case s.Kind == cluster.Process || d == "":
		env = gpu.Devices(s.Devices)
	default:
		share := gpu.Share{Device: d, Percent: s.Config.GPU, Memory: s.Config.GPUMemory}
		if own := g.daemon(d); own != nil {
			share.PipeDirectory = own.options.Pipes()
		} else {
			share.Percent = cluster.WholeDevice
		}
		env = share.Env()
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+env[name])
	}
	return all
}

// Files returns the device files that an instance may not use: those of other GPUs, or all if it has
// none. Without a GPU on the machine there are none.
func (g *GPUs) Files(s *cluster.InstanceSpec) []string {
	files, err := filepath.Glob("/dev/nvidia*")
	if err != nil || !g.Present() || len(files) == 0 {
		return nil
	}
	own := map[string]bool{}
	for _, d := range g.state().Devices {
		if slices.Contains(s.Devices, d.UUID) {
			own[fmt.Sprintf("/dev/nvidia%d", d.Minor)] = true
		}
	}
	return slices.DeleteFunc(files, func(name string) bool {
		number := strings.TrimPrefix(name, "/dev/nvidia")
		info, err := os.Stat(name)
		return own[name] || err != nil || info.IsDir() || len(own) > 0 && strings.Trim(number, "0123456789") != ""
	})
}

// Daemon returns the process of a device's MPS daemon.
func (g *GPUs) Daemon(device string) (pid int, err error) {
	d := g.daemon(device)
	if d == nil {
		return 0, fmt.Errorf("%s is given out whole, without an MPS daemon", device)
	}
	return d.options.PID()
}

// Close ends the watching. keep leaves the daemons to the next provider, because instances use them;
// otherwise Close ends them.
func (g *GPUs) Close(keep bool) error {
	if g.cancel == nil {
		return nil
	}
	g.cancel()
	g.work.Wait()
	var errs []error
	for _, d := range g.daemons {
		if keep {
			d.release()
		} else {
			errs = append(errs, d.end())
		}
	}
	return errors.Join(errs...)
}
