// Package shares measures models on shares of a GPU for "faas-infer profile". A share belongs
// to a process (MPS), so each share has a child process, which [Card.Run] starts and
// [Times] does the work of. The package says neither when to measure nor what the times mean;
// package profiler does. Begin with [Open] and [Card.Model].
package shares

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
	"github.com/faas-infer/faas-infer/postmortem"
)

// PipeEnv is the variable by which CUDA finds an MPS daemon that runs already.
const PipeEnv = "CUDA_MPS_PIPE_DIRECTORY"

// Options say which GPU to measure.
type Options struct {
	// GPU is its index or UUID. Flag is the flag that names it, for errors; "--gpu" of the
	// command profile if empty.
	GPU, Flag string
	// Library is the driver's NVML library.
	Library nvml.Interface
	// MPS is the MPS control program, "" for the driver's.
	MPS string
	// Self is this program, which a child runs.
	Self string
	// Whole says that only the whole GPU is measured, which needs no MPS daemon. It is used if one runs
	// already: the GPU's other processes are its clients.
	Whole bool
	// Pipe is the directory of the pipes of an MPS daemon that runs already, "" if none does.
	Pipe string
	// Log gets what children write to their standard error, nil for none.
	Log io.Writer
}

// Card is a GPU whose shares processes get.
type Card struct {
	options   Options
	inventory gpu.Inventory
	device    gpu.Device
	daemon    *device.MPSDaemon
	directory string
}

// Open finds the GPU and starts an MPS daemon for it, unless one runs already. The error wraps [gpu.ErrNone] if there is no GPU that
// can be shared.
func Open(ctx context.Context, o Options) (*Card, error) {
	where, hint := "--gpu "+o.GPU, "; --shares 100 measures the whole GPU without MPS"
	if o.Flag != "" {
		where, hint = o.Flag+" "+o.GPU, ""
	}
	i, err := device.Read(o.Library)
	if err != nil {
		return nil, fmt.Errorf("read the GPUs: %w", err)
	}
	c := &Card{options: o}
	at := slices.IndexFunc(i.Devices, func(d gpu.Device) bool { return d.UUID == o.GPU || strconv.Itoa(d.Index) == o.GPU })
	if at < 0 {
		return nil, fmt.Errorf("%s: %w with that index or UUID; there are %d", where, gpu.ErrNone, len(i.Devices))
	}
	c.inventory, c.device = i, i.Devices[at]
	if o.Whole && o.Pipe == "" {
		return c, nil
	}
	if why := c.device.Unshareable; why != "" {
		return nil, fmt.Errorf("%s: %w to share: %s%s", where, gpu.ErrNone, why, hint)
	}
	c.inventory.Sharing = gpu.MPS
	if c.inventory.PipeDirectory = o.Pipe; c.inventory.PipeDirectory != "" {
		return c, nil
	}
	if c.directory, err = os.MkdirTemp("", "faas-infer-mps-"); err != nil {
		return nil, err
	}
	// Other users' processes cannot be MPS clients of this daemon, but root's children may
	// drop to another user.
	m := device.MPSOptions{Program: o.MPS, Directory: c.directory, Devices: []string{c.device.UUID}}
	if c.daemon, err = device.StartMPS(ctx, m); err != nil {
		return nil, errors.Join(fmt.Errorf("%w%s", err, hint), os.RemoveAll(c.directory))
	}
	c.inventory.PipeDirectory = m.Pipes()
	return c, nil
}

// Close ends the daemon that Open started.
func (c *Card) Close() error {
	if c.daemon == nil {
		return nil
	}
	return errors.Join(c.daemon.Stop(), os.RemoveAll(c.directory))
}

// Inventory is what the driver says of the machine's GPUs, and Device what it says of this one.
func (c *Card) Inventory() gpu.Inventory { return c.inventory }

// Device is described at Inventory.
func (c *Card) Device() gpu.Device { return c.device }

// Machine names the GPU in profiles: its model and driver, on which times depend.
func (c *Card) Machine() string { return gpu.Kind(c.device.Model, c.inventory.Driver) }

// Environment is that of a process with a share of percent %.
func (c *Card) Environment(percent int) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CUDA_") })
	if c.inventory.PipeDirectory == "" {
		return append(env, "CUDA_VISIBLE_DEVICES="+c.device.UUID)
	}
	for name, value := range c.inventory.On(c.device.UUID, percent, 0).Env() {
		env = append(env, name+"="+value)
	}
	return env
}

// Run runs this program with arguments as a child on a share of percent %, and decodes its
// output, one JSON value, into to. The error says what the child said, or how it died.
func (c *Card) Run(ctx context.Context, percent int, to any, arguments ...string) error {
	var out, complaint bytes.Buffer
	command := exec.CommandContext(ctx, c.options.Self, arguments...)
	command.Env, command.Stdout, command.Stderr = c.Environment(percent), &out, &complaint
	if c.options.Log != nil {
		command.Stderr = io.MultiWriter(&complaint, c.options.Log)
	}
	child, err := process.Start(command, syscall.SIGKILL)
	if err == nil {
		err = child.Wait()
	}
	where := fmt.Sprintf("on %d %% of the GPU", percent)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		sentence, _ := postmortem.Explain(err, complaint.String())
		return fmt.Errorf("%s: %s", where, sentence)
	}
	if err := json.Unmarshal(out.Bytes(), to); err != nil {
		return fmt.Errorf("%s: read what the child process printed: %w", where, err)
	}
	return nil
}
