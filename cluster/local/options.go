package local

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
)

// Options says how the backend runs instances.
type Options struct {
	// Dir holds the state that the next provider takes over: one directory per
	// instance, and the logs. Only one Backend can use it at a time.
	Dir string
	// NodeName is this machine's name, the host name if empty.
	NodeName string
	// Total is what all instances together may take. If nil, it is what this process
	// may use: its cores × 1000 millicores and the machine's memory, or the limits of
	// its own cgroup if those are lower.
	Total *cluster.Resources
	// Beside returns the memory in bytes that processes beside the instances hold for
	// them, such as warm Python processes. Instances cannot have that memory. nil for
	// none. The backend calls it at every check for free memory, so it must be quick
	// and must not call the backend.
	Beside func() int64
	// Command returns how to start an instance that listens on socket: its arguments,
	// the program first, and its environment as "NAME=value". The process also gets
	// the provider's PATH and HOME, spec.Env as [sandbox.FunctionEnvironment] reads
	// it, and FAAS_INFER_READY_FD. It writes "ready\n" to that descriptor once it
	// answers on the socket, and must continue if nobody reads it. It gets nothing
	// else of the provider's environment.
	Command func(spec cluster.InstanceSpec, socket string) (argv, env []string)

	// GPUs say which GPUs instances use; none if its Library is nil. The backend sets its Dir, Failed
	// and Logger.
	GPUs gpus.Options

	// CgroupParent names the control group that holds those of the instances.
	// If empty, it is "faas-infer-" and a hash of Dir.
	CgroupParent string
	// Cores are those that instances may run on. If empty, they may use all cores of
	// this process.
	Cores []int
	// PinCPUs gives an instance that asks for whole cores exclusive ones; the other
	// instances share the rest. It needs cgroups.
	PinCPUs bool
	// Favour makes this process weigh as much as all instances together when cores are
	// short, so they cannot starve it.
	Favour bool
	// Own returns the CPU time that this process has used, and the processes that it
	// started to bring requests in. Instances do not get what these use, unless Total
	// or Cores says what instances may have. nil reserves nothing.
	Own func() time.Duration
	// Hide are directories that ordinary functions see empty, in addition to Dir and
	// /root: the provider's state, its bundles, its users' secrets.
	Hide []string
	// NoCgroups and NoSandbox switch these off even if the provider has the rights.
	NoCgroups, NoSandbox bool

	// LogBytes is the maximum size of a file of an instance's log, 10 MiB if 0.
	// LogFiles is how many rotated files each instance keeps, and of how many exited
	// instances each function keeps logs, 3 if 0.
	LogBytes int64
	LogFiles int
	// StartTimeout is how long an instance may take to become ready before it is
	// given up, 2 minutes if 0.
	StartTimeout time.Duration

	Logger zerolog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time

	// removeAll is os.RemoveAll if nil. Tests replace it by one that fails.
	removeAll func(path string) error
}

const (
	defaultLogBytes     = 10 << 20
	defaultLogFiles     = 3
	defaultStartTimeout = 2 * time.Minute
)

// complete fills in defaults.
func (o Options) complete() (Options, error) {
	if o.Dir == "" || o.Command == nil {
		return o, errors.New("set Options.Dir and Options.Command: the local backend needs them")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("state directory: %w", err)
	}
	o.Dir = dir
	if o.NodeName == "" {
		if o.NodeName, err = os.Hostname(); err != nil {
			return o, fmt.Errorf("name of this node: %w", err)
		}
	}
	if o.CgroupParent == "" {
		o.CgroupParent = "faas-infer-" + shortHash(o.Dir)
	}
	if o.LogBytes <= 0 {
		o.LogBytes = defaultLogBytes
	}
	if o.LogFiles <= 0 {
		o.LogFiles = defaultLogFiles
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.removeAll == nil {
		o.removeAll = os.RemoveAll
	}
	return o, nil
}

// shortHash returns 8 hexadecimal digits that distinguish directories in names.
func shortHash(text string) string {
	sum := fnvHash(text)
	return fmt.Sprintf("%08x", uint32(sum)^uint32(sum>>32))
}

func fnvHash(text string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text))
	return hash.Sum64()
}

// ownCores lists the cores that this process may run on.
func ownCores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cores of this process: %w", err)
	}
	var cores []int
	for core := 0; len(cores) < set.Count(); core++ {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// measure returns what instances may use of this machine with a number of cores.
func measure(cores int) (cluster.Resources, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return cluster.Resources{}, fmt.Errorf("memory of this machine: %w", err)
	}
	total := cluster.Resources{CPU: cores * 1000, Memory: int64(info.Totalram) * int64(info.Unit)}
	own := cgroup.Own()
	if own.CPU > 0 {
		total.CPU = min(total.CPU, own.CPU)
	}
	if own.Memory > 0 {
		total.Memory = min(total.Memory, own.Memory)
	}
	return total, nil
}
