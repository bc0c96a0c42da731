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
	// Percent is the share of its multiprocessors in %, Memory the memory limit in
	// bytes. A Memory of 0 is no limit.
	Percent int
	Memory  int64
	// PipeDirectory is where the MPS control daemon listens, SharedMemory the
	// /dev/shm that it shares with its clients, both on the node.
	PipeDirectory, SharedMemory string
}

// MaxShares is the maximum number of shares of one GPU. MPS serves at most so many
// processes (48 from Volta on).
const MaxShares = 48

// megabyte is the unit of MPS' limit.
const megabyte = 1 << 20

// The variables that every share has.
const (
	devicesEnv = "CUDA_VISIBLE_DEVICES"
	percentEnv = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
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
	env := map[string]string{
		devicesEnv:                   s.Device,
		percentEnv:                   strconv.Itoa(s.Percent),
		"CUDA_MPS_PIPE_DIRECTORY":    s.PipeDirectory,
		"NVIDIA_VISIBLE_DEVICES":     s.Device,
		"NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
	}
	if s.Memory > 0 {
		// Round up: with less memory than planned, a model may fail to load.
		env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = fmt.Sprintf("0=%dM", (s.Memory+megabyte-1)/megabyte)
	}
	return env
}

// Mount is a directory of the node that a container needs at a path.
type Mount struct {
	// Name identifies the mount; it is a DNS label.
	Name string
	// Host is the directory on the node, Path its path in the container.
	Host, Path string
}

// Mounts returns the directories through which a container reaches the MPS daemon. A
// namespace with Pod Security "restricted" or "baseline" allows none of them.
func (s Share) Mounts() []Mount {
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

// room is what a GPU has left.
type room struct {
	Device
	percent int
	memory  int64
	shares  int
}

// byRoom compares rooms by multiprocessors, then by memory.
func byRoom(a, b room) int {
	return cmp.Or(cmp.Compare(a.percent, b.percent), cmp.Compare(a.memory, b.memory))
}

// left returns what each shared GPU has left. A GPU with [MaxShares] shares has no
// multiprocessors left.
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

// Free returns what the node can still give if these shares are held. If some GPUs hold no
// share, it is the sum of these GPUs. Otherwise it is the rest of the GPU with the most
// left, because a share is on one GPU: with 60 % held of each of two, 40 % are free and
// not 80.
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
	most := slices.MaxFunc(all, byRoom)
	return max(0, most.percent), max(0, most.memory)
}

// Place chooses the GPU of a new share: among the GPUs with enough left, the one with the
// fewest multiprocessors left, then the least memory. Whole GPUs thus stay free for large
// shares. The error wraps [ErrNone] if no GPU has enough left.
func (i Inventory) Place(held []Held, percent int, memory int64) (Share, error) {
	if percent < 1 || percent > 100 || memory < 0 {
		return Share{}, fmt.Errorf("a share of %d %% of a GPU and %d bytes: it must be 1 to 100 %% and at least 0 bytes, as an instance uses at most one GPU", percent, memory)
	}
	all := i.left(held)
	if len(all) == 0 {
		return Share{}, fmt.Errorf("%w to share: %s", ErrNone, i.why())
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(r room) bool { return r.percent < percent || r.memory < memory })
	if len(fits) == 0 {
		best := slices.MaxFunc(all, byRoom)
		return Share{}, fmt.Errorf("%w has %d %% and %d MiB left: the one with the most left, %s, has %d %% and %d MiB",
			ErrNone, percent, memory/megabyte, best.UUID, best.percent, best.memory/megabyte)
	}
	at := slices.MinFunc(fits, func(a, b room) int {
		return cmp.Or(byRoom(a, b), cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	return i.On(at.UUID, percent, memory), nil
}

// On returns a share of the GPU with that UUID.
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
	return "they are allocated as " + string(i.Sharing)
}

// Offer decides how a node's GPUs are allocated, and says why if not by MPS. present is
// the number of its GPUs, ours the number of GPUs to share, and whole the number that
// NVIDIA's device plugin advertises. The plugin does not say which GPUs it has. So GPUs
// are shared only if there are enough for both: whole + ours ≤ present.
func Offer(present, ours, whole int) (Sharing, string) {
	switch {
	case present == 0:
		return None, "the machine has no GPU"
	case whole > 0 && whole+ours > present:
		return Whole, fmt.Sprintf("NVIDIA's device plugin advertises %d %s of the node's %d, and %d more are to be shared: the same GPU would be given out twice. "+
			"Keep the plugin off this node, or name the GPUs that it does not have with --devices", whole, WholeResource, present, ours)
	case ours == 0:
		return None, "none of the node's GPUs can be shared"
	}
	return MPS, ""
}
