package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Share is what one instance gets of one GPU.
type Share struct {
	// Device is the GPU's UUID.
	Device string
	// Percent of its multiprocessors, Memory in bytes; a Memory of 0 has no limit.
	Percent int
	Memory  int64
	// PipeDirectory is where the MPS control daemon listens, SharedMemory the
	// /dev/shm that it shares with its clients, both on the node.
	PipeDirectory, SharedMemory string
}

// MaxShares is how many shares one GPU is divided into at most: so many processes
// does MPS serve (48 from Volta on).
const MaxShares = 48

// megabyte is the unit of MPS' limit.
const megabyte = 1 << 20

// The variables that every share has.
const (
	devicesEnv = "CUDA_VISIBLE_DEVICES"
	percentEnv = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
)

// Shared reports whether a process with this environment was given a [Share].
func Shared(getenv func(name string) string) bool {
	return getenv(devicesEnv) != "" && getenv(percentEnv) != ""
}

// Env is the environment by which CUDA gives a process the share and no more. The
// process sees the one GPU as its device 0, so the memory's limit is for that.
//
// The NVIDIA container runtime reads NVIDIA_VISIBLE_DEVICES and
// NVIDIA_DRIVER_CAPABILITIES; without it they do nothing.
func (s Share) Env() map[string]string {
	env := map[string]string{
		devicesEnv:                   s.Device,
		percentEnv:                   strconv.Itoa(s.Percent),
		"CUDA_MPS_PIPE_DIRECTORY":    s.PipeDirectory,
		"NVIDIA_VISIBLE_DEVICES":     s.Device,
		"NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
	}
	if s.Memory > 0 {
		// Rounded up: less than was asked for could stop a model from loading.
		env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = fmt.Sprintf("0=%dM", (s.Memory+megabyte-1)/megabyte)
	}
	return env
}

// Mount is a directory of the node that a container needs at a path.
type Mount struct {
	// Name tells mounts apart; it is a DNS label.
	Name string
	// Host is the directory on the node, Path where the container sees it.
	Host, Path string
}

// Mounts are the directories through which a container reaches the MPS daemon. A
// namespace where Pod Security is "restricted" or "baseline" allows none of them.
func (s Share) Mounts() []Mount {
	shm := cmp.Or(s.SharedMemory, "/dev/shm")
	return []Mount{{"mps-pipe", s.PipeDirectory, s.PipeDirectory}, {"mps-shm", shm, "/dev/shm"}}
}

// Held is what some instance has of a GPU.
type Held struct {
	// Device is the GPU's UUID.
	Device  string
	Percent int
	Memory  int64
}

// room is what a GPU has left.
type room struct {
	Device
	percent int
	memory  int64
	shares  int
}

// left is what each GPU that is shared has left: nothing if it has [MaxShares].
func (i Inventory) left(held []Held) []room {
	var all []room
	for _, d := range i.Shareable() {
		r := room{d, 100, d.Memory, 0}
		for _, h := range held {
			if h.Device == d.UUID {
				r.percent, r.memory, r.shares = r.percent-h.Percent, r.memory-h.Memory, r.shares+1
			}
		}
		if r.shares >= MaxShares {
			r.percent = 0
		}
		all = append(all, r)
	}
	return all
}

// Free is what the node still has to give, if these shares are held: all of the
// GPUs of which none is, or else what the GPU with most left has. A share is on one
// GPU: with 60 % held of each of two, 40 % are free and not 80.
func (i Inventory) Free(held []Held) (percent int, memory int64) {
	all := i.left(held)
	for _, r := range all {
		if r.percent >= 100 && r.memory >= r.Memory {
			percent, memory = percent+100, memory+r.Memory
		}
	}
	if percent > 0 || len(all) == 0 {
		return percent, memory
	}
	most := slices.MaxFunc(all, func(a, b room) int { return cmp.Or(cmp.Compare(a.percent, b.percent), cmp.Compare(a.memory, b.memory)) })
	return max(0, most.percent), max(0, most.memory)
}

// Place says which GPU a new share goes on: of those that have it left, the one
// that has least left of its multiprocessors, and then of its memory, so that whole
// GPUs stay free for large shares. It wraps [ErrNone] if there is none.
func (i Inventory) Place(held []Held, percent int, memory int64) (Share, error) {
	if percent < 1 || percent > 100 || memory < 0 {
		return Share{}, fmt.Errorf("a share of %d %% of a GPU and %d bytes: it must be 1 to 100 %%, as an instance uses one GPU at most", percent, memory)
	}
	all := i.left(held)
	if len(all) == 0 {
		return Share{}, fmt.Errorf("%w to share: %s", ErrNone, i.why())
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(r room) bool { return r.percent < percent || r.memory < memory })
	if len(fits) == 0 {
		best := slices.MaxFunc(all, func(a, b room) int { return cmp.Or(cmp.Compare(a.percent, b.percent), cmp.Compare(a.memory, b.memory)) })
		return Share{}, fmt.Errorf("%w has %d %% and %d MiB left: the freest, %s, has %d %% and %d MiB",
			ErrNone, percent, memory/megabyte, best.UUID, best.percent, best.memory/megabyte)
	}
	at := slices.MinFunc(fits, func(a, b room) int {
		return cmp.Or(cmp.Compare(a.percent, b.percent), cmp.Compare(a.memory, b.memory), cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	return i.On(at.UUID, percent, memory), nil
}

// On is a share of the GPU with that UUID.
func (i Inventory) On(device string, percent int, memory int64) Share {
	return Share{Device: device, Percent: percent, Memory: memory, PipeDirectory: i.PipeDirectory, SharedMemory: i.SharedMemory}
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
	return "they are given out as " + string(i.Sharing)
}

// Offer says how the GPUs can be given out where NVIDIA's device plugin advertises
// so many of them as whole ones on the node, and ours are the devices of which shares
// are to be given out. The plugin does not say which ones it has; so both can only
// be had if there are enough for each to have its own.
func Offer(present, ours, whole int) (Sharing, string) {
	switch {
	case present == 0:
		return None, "the machine has no GPU"
	case whole > 0 && whole+ours > present:
		return Whole, fmt.Sprintf("NVIDIA's device plugin advertises %d %s of the node's %d, and %d were to be shared: the same GPU would be given out twice. "+
			"Keep the plugin off this node, or name the GPUs that it does not have with --devices", whole, WholeResource, present, ours)
	case ours == 0:
		return None, "none of the node's GPUs can be shared"
	}
	return MPS, ""
}
