package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
)

// Share is what one instance gets of one GPU.
type Share struct {
	// Device is the GPU's UUID.
	Device string
	// Percent is the share of its multiprocessors in %, Memory the memory limit in
	// bytes. A Memory of 0 is no limit.
	Percent int
	Memory  int64
	// PipeDirectory is where the MPS control daemon listens, SharedMemory the
	// /dev/shm that it shares with its clients, both on the node. Without a daemon both are
	// empty, and the instance has the device to itself.
	PipeDirectory, SharedMemory string
	// RuntimeClass is that of the inventory.
	RuntimeClass string
	// Grant is the resource by which the cluster gives the device to the container, "" for another way. The
	// device has no UUID then.
	Grant string
}

// megabyte is the unit of MPS' limit.
const megabyte = 1 << 20

// The variables that every share has.
const (
	devicesEnv = "CUDA_VISIBLE_DEVICES"
	percentEnv = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	// memoryEnv is set if the memory is limited.
	memoryEnv = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// Shared reports whether a process with this environment has a [Share].
func Shared(getenv func(name string) string) bool {
	return getenv(devicesEnv) != "" && getenv(percentEnv) != ""
}

// Env returns the environment with which CUDA limits a process to the share. The process
// sees the GPU as its device 0, so the memory limit names device 0.
//
// The NVIDIA container runtime reads NVIDIA_VISIBLE_DEVICES and
// NVIDIA_DRIVER_CAPABILITIES. Without that runtime they have no effect.
func (s Share) Env() map[string]string {
	if s.Grant != "" { // The device plugin sets VisibleEnv.
		return map[string]string{devicesEnv: "0", percentEnv: strconv.Itoa(s.Percent), "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
	}
	env := map[string]string{
		devicesEnv:                   s.Device,
		percentEnv:                   strconv.Itoa(s.Percent),
		VisibleEnv:                   s.Device,
		"NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
	}
	if s.PipeDirectory == "" {
		return env
	}
	env["CUDA_MPS_PIPE_DIRECTORY"] = s.PipeDirectory
	if s.Memory > 0 {
		// Round up: with less memory than planned, a model may fail to load.
		env[memoryEnv] = fmt.Sprintf("0=%dM", (s.Memory+megabyte-1)/megabyte)
	}
	return env
}

// IsShare reports whether a variable of the environment is one from which [ReadShare] reads.
func IsShare(name string) bool { return name == devicesEnv || name == percentEnv || name == memoryEnv }

// ReadShare returns the share that [Share.Env] wrote: its device, percentage and memory, in whole
// MiB. It returns an empty share if there is none.
func ReadShare(getenv func(name string) string) Share {
	percent, err := strconv.Atoi(getenv(percentEnv))
	if err != nil || percent < 1 || percent > 100 || getenv(devicesEnv) == "" {
		return Share{}
	}
	s := Share{Device: getenv(devicesEnv), Percent: percent}
	limit, _ := strings.CutPrefix(getenv(memoryEnv), "0=")
	if mib, err := strconv.ParseInt(strings.TrimSuffix(limit, "M"), 10, 32); err == nil && mib > 0 {
		s.Memory = mib * megabyte
	}
	return s
}

// Devices returns the environment with which CUDA sees only these devices, by UUID, each of them
// whole, or none.
func Devices(uuids []string) map[string]string {
	visible := strings.Join(uuids, ",")
	return map[string]string{devicesEnv: visible, VisibleEnv: cmp.Or(visible, "void")}
}

// Ours reports whether a variable of the environment says which GPU a process uses, so that a
// function must not set it.
func Ours(name string) bool {
	return name == devicesEnv || name == VisibleEnv || name == "CUDA_DEVICE_ORDER" || strings.HasPrefix(name, "CUDA_MPS_")
}

// tunable are variables by which a function changes how its engine computes on its GPU. None names a
// file: a library that CUDA loads by a variable would run in the instance.
var tunable = []string{
	"NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUBLAS_WORKSPACE_CONFIG",
	"TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "PYTORCH_CUDA_ALLOC_CONF",
}

// Tunes reports whether a variable of a function's environment reaches its model's engine: it changes
// how the engine computes on its GPU, and no more.
func Tunes(name string) bool { return slices.Contains(tunable, name) }

// Granted names the n-th whole GPU that the device plugin gives out on a node, which has no UUID before.
func Granted(n int) string { return grantedPrefix + strconv.Itoa(n) }

const grantedPrefix = WholeResource + "-"

// IsGranted reports whether a device is named by [Granted].
func IsGranted(device string) bool { return strings.HasPrefix(device, grantedPrefix) }

// Mount is a directory of the node that a container needs at a path.
type Mount struct {
	// Name identifies the mount; it is a DNS label.
	Name string
	// Host is the directory on the node, Path its path in the container.
	Host, Path string
}

// Mounts returns the directories through which a container reaches the MPS daemon, none without a
// daemon. A namespace with Pod Security "restricted" or "baseline" allows none of them.
func (s Share) Mounts() []Mount {
	if s.PipeDirectory == "" {
		return nil
	}
	shm := cmp.Or(s.SharedMemory, "/dev/shm")
	return []Mount{{"mps-pipe", s.PipeDirectory, s.PipeDirectory}, {"mps-shm", shm, "/dev/shm"}}
}

// Held is the share of a GPU that an instance holds.
type Held struct {
	// Device is the GPU's UUID.
	Device  string
	Percent int
	Memory  int64
}

// Rooms returns the GPUs that instances may use and what these shares leave free of each.
func (i Inventory) Rooms(held []Held) (rooms []cluster.DeviceRoom) {
	for _, d := range i.Usable() {
		total := cluster.Resources{GPU: d.percent(), GPUMemory: d.Memory}
		r := cluster.DeviceRoom{UUID: d.UUID, Total: total, Free: total, Whole: d.Whole, Kind: i.KindOf(&d), Lost: d.Lost}
		for _, h := range held {
			if h.Device == d.UUID {
				r.Free, r.Instances = r.Free.Sub(cluster.Resources{GPU: h.Percent, GPUMemory: h.Memory}), r.Instances+1
			}
		}
		rooms = append(rooms, r)
	}
	return rooms
}

// Place chooses the GPU of a new share ([cluster.BestDevice]). wish is the one that a scheduler
// chose, "" if there is none: it is taken as long as it has enough left. The error wraps [ErrNone]
// if no GPU has.
func (i Inventory) Place(held []Held, wish string, percent int, memory int64) (Share, error) {
	if percent < 1 || percent > 100 || memory < 0 {
		return Share{}, fmt.Errorf("a share of %d %% of a GPU and %d bytes: it must be 1 to 100 %% and at least 0 bytes, as an instance uses at most one GPU", percent, memory)
	}
	rooms, need := i.Rooms(held), cluster.Resources{GPU: percent, GPUMemory: memory}
	if len(rooms) == 0 {
		return Share{}, fmt.Errorf("%w to share: %s", ErrNone, i.why())
	}
	at := cluster.ChooseDevice(rooms, need, wish)
	if at < 0 {
		usable := slices.DeleteFunc(slices.Clone(rooms), func(r cluster.DeviceRoom) bool { return r.Lost != "" })
		if len(usable) == 0 {
			return Share{}, fmt.Errorf("%w is left for %d %%: %s: %s", ErrNone, percent, rooms[0].UUID, rooms[0].Lost)
		}
		most := slices.MaxFunc(usable, func(a, b cluster.DeviceRoom) int { return cluster.CompareDevices(&a, &b) })
		return Share{}, fmt.Errorf("%w has %d %% and %d MiB left: the one with the most left, %s, has %d %% and %d MiB",
			ErrNone, percent, memory/megabyte, most.UUID, most.Free.GPU, most.Free.GPUMemory/megabyte)
	}
	return i.On(rooms[at].UUID, percent, memory), nil
}

// On returns a share of the GPU with that UUID.
func (i Inventory) On(device string, percent int, memory int64) Share {
	s := Share{Device: device, Percent: percent, Memory: memory, PipeDirectory: i.PipeDirectory, SharedMemory: i.SharedMemory, RuntimeClass: i.RuntimeClass}
	if n := slices.IndexFunc(i.Devices, func(d Device) bool { return d.UUID == device }); n >= 0 {
		if s.PipeDirectory = cmp.Or(i.Devices[n].PipeDirectory, s.PipeDirectory); i.Devices[n].Whole {
			s.PipeDirectory = ""
		}
		s.Grant = i.Devices[n].Grant
	}
	return s
}

// why says why no GPU is shared.
func (i Inventory) why() string {
	switch {
	case i.Reason != "":
		return i.Reason
	case len(i.Devices) == 0:
		return "the machine has none"
	}
	for _, d := range i.Devices {
		if d.Unshareable != "" {
			return d.UUID + ": " + d.Unshareable
		}
	}
	return "they are allocated as " + string(i.Sharing)
}

// Offer decides how a node's GPUs are allocated, and says why if not by faas-infer. whole is the number
// of GPUs and MIG instances that NVIDIA's device plugin advertises. With Claimed, the plugin gave the
// usable ones to the agent, and thus gives them to nobody else unless it hands out each several times.
// Without, the plugin does not say which it has, so they are used only if there are enough for both.
// Those that are gone are among them, because the plugin may still count its own.
func (i Inventory) Offer(whole int) (Sharing, string) {
	i.Sharing = MPS
	usable := i.Usable()
	present, gone := count(i.Devices)
	ours, _ := count(usable)
	missing := ""
	if gone > 0 {
		missing = fmt.Sprintf(". %d more are lost: restart the plugin if it still counts them", gone)
	}
	switch {
	case len(i.Devices) == 0:
		return None, "the machine has no GPU"
	case i.Claimed && present > 0 && i.Repeats(whole):
		return Whole, fmt.Sprintf("NVIDIA's device plugin advertises %d %s and the agent sees %d GPUs: it hands out a GPU several times, so another pod may get one of ours. "+
			"Turn off its own sharing (time slicing or MPS) on this node", whole, WholeResource, present) + missing
	case !i.Claimed && whole > 0 && whole+len(usable) > present+gone:
		return Whole, fmt.Sprintf("NVIDIA's device plugin advertises %d %s of the node's %d, and %d more are to be shared: the same GPU would be given out twice. "+
			"Let the agent ask the plugin for its GPUs (--device-plugin), keep the plugin off this node, or name the GPUs that it does not have with --devices", whole, WholeResource, present, ours) + missing
	case len(usable) == 0:
		return None, "none of the node's GPUs can be used"
	}
	return MPS, ""
}

// Repeats reports whether a device plugin that advertises so many of the node's GPUs hands out each several times.
// It may still count those that are gone, but advertises twice the others or more if it does.
func (i Inventory) Repeats(whole int) bool {
	present, gone := count(i.Devices)
	return len(i.Devices) > 0 && (whole > present+gone || present > 0 && whole >= 2*present)
}

// count returns how many of the devices can be given out as far as the driver lists them, and how many
// are gone. The MIG instances of a GPU are given out in its place.
func count(devices []Device) (present, gone int) {
	for _, d := range devices {
		switch {
		case d.Divided:
		case d.Gone:
			gone++
		default:
			present++
		}
	}
	return present, gone
}

// VisibleEnv is the variable by which NVIDIA's device plugin tells a container its GPUs.
const VisibleEnv = "NVIDIA_VISIBLE_DEVICES"

// Given returns the GPUs, by UUID or index, that NVIDIA's device plugin gave to a container with
// this value of [VisibleEnv]. An error says why they are not the container's alone.
func Given(value string) (names []string, err error) {
	ask := fmt.Sprintf("give the container resources %s, and do not set the variable yourself", WholeResource)
	switch value {
	case "":
		return nil, fmt.Errorf("%s is empty: the device plugin gave no GPU; %s", VisibleEnv, ask)
	case "all", "none", "void":
		return nil, fmt.Errorf("%s is %q: it must name the GPUs that the device plugin gave; %s", VisibleEnv, value, ask)
	}
	if strings.HasPrefix(value, "/") {
		return nil, fmt.Errorf("%s is %q: set the device plugin's deviceListStrategy to envvar", VisibleEnv, value)
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("%s is %q: it has an entry with no name", VisibleEnv, value)
		case slices.Contains(names, name):
			return nil, fmt.Errorf("%s is %q: the device plugin hands out %s twice; turn off its own sharing (time slicing or MPS) on this node", VisibleEnv, value, name)
		case strings.Contains(name, "::"):
			return nil, fmt.Errorf("%s is %q: %s is one of several copies of a GPU that the device plugin hands out; turn off its own sharing (time slicing or MPS) on this node", VisibleEnv, value, name)
		}
		names = append(names, name)
	}
	return names, nil
}
