package command

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/instance/standby"
)

// standbyPause is the time from an instance's start on a GPU to that of the next standby: the
// instance's first batch sizes are prepared by then.
const standbyPause = 3 * time.Second

// standbyMemory is the GPU's memory in bytes that is kept for a process that stands by: a CUDA context,
// handles of CUDA's libraries and loaded kernels.
const standbyMemory = 1 << 30

// emptyMemory is the memory in bytes that is kept for the empty instance: the process and the ONNX
// Runtime library. emptyPause is the time from the start of a body or a shadow to that of the next empty
// instance.
const (
	emptyMemory = 64 << 20
	emptyPause  = time.Second
)

// forShadows is the name of the empty instance among those that stand by.
const forShadows = "shadows"

// standbys keeps processes that stand by: for shares of GPUs, if there are to be any, and an empty one
// for the next shadow (AsyFunc §3.4).
type standbys struct {
	onGPUs       bool
	gpus, shadow *standby.Keeper
}

func (f *ProviderFlags) standbys(log zerolog.Logger) (s standbys, err error) {
	s.onGPUs = f.standBy
	command := func(socket string) []string {
		return []string{process.Self(), "instance", "stand-by", "--socket", socket}
	}
	if s.gpus, err = standby.NewKeeper(standby.Options{Dir: f.standbyDir(), Ours: instances.OfShare, Pause: standbyPause, Log: log, Command: command}); err != nil {
		return s, err
	}
	s.shadow, err = standby.NewKeeper(standby.Options{
		Dir: f.standbyDir(), Socket: instances.EmptySocket(f.standbyDir()), Pause: emptyPause, Log: log,
		Command: func(socket string) []string { return append(command(socket), "--empty") },
	})
	return s, err
}

// starts says that an instance starts with env. A process is kept for the next one with a share as its
// own, and for its shadow. An ordinary function has its GPUs to itself.
func (s *standbys) starts(spec cluster.InstanceSpec, env []string) {
	if spec.Kind == cluster.Process {
		for _, device := range spec.Devices {
			s.gpus.Drop(device)
		}
		return
	}
	shared := slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, "CUDA_MPS_PIPE_DIRECTORY=") })
	if device := spec.Device(); s.onGPUs && shared && device != "" {
		s.gpus.Used(device, env)
	}
	if spec.Paired || spec.Role == cluster.Shadow {
		s.shadow.Used(forShadows, nil)
	}
}

// memory is what is kept for the empty instance in bytes.
func (s *standbys) memory() int64 {
	if s.shadow.Keeps(forShadows) {
		return emptyMemory
	}
	return 0
}

// Close ends the processes that have become no instance.
func (s *standbys) Close() error { return errors.Join(s.gpus.Close(), s.shadow.Close()) }
