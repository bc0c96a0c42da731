// Package gpu describes a node's GPUs and decides how to share them through CUDA MPS
// (INFless §4): [Inventory] is what a node has, [Share] what one instance gets of one GPU,
// and [Inventory.Place] chooses the GPU of a new share. The package is pure; package
// gpu/device reads the driver and runs the MPS control daemon. Begin reading at [Inventory]
// and [Inventory.Place].
package gpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// InventoryAnnotation is the annotation of a Kubernetes node that holds its
	// [Inventory] as JSON.
	InventoryAnnotation = "faas-infer.dev/gpus"
	// DeviceAnnotation is the annotation of a pod that holds the UUID of the GPU
	// of which it has a share.
	DeviceAnnotation = "faas-infer.dev/gpu"
	// WholeResource is the resource under which NVIDIA's device plugin offers whole
	// GPUs.
	WholeResource = "nvidia.com/gpu"
)

// ErrNone means that there is no GPU, or none with enough left.
var ErrNone = errors.New("no GPU")

// Sharing says how a node's GPUs are allocated.
type Sharing string

// The values of Sharing.
const (
	// None: not at all; Reason says why.
	None Sharing = "none"
	// MPS: in shares, by faas-infer.
	MPS Sharing = "mps"
	// Whole: each to one container, by NVIDIA's device plugin.
	Whole Sharing = "whole"
)

// Device is one GPU.
type Device struct {
	// Index is the driver's index. UUID names the GPU permanently.
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	// Model is the driver's name for it.
	Model string `json:"model"`
	// Memory in bytes.
	Memory int64 `json:"memory"`
	// SMs is the number of its multiprocessors; 0 if the driver does not report it.
	SMs int `json:"sms,omitzero"`
	// Capability is the compute capability, for example "8.0".
	Capability string `json:"capability"`
	// Minor is the number of its file, /dev/nvidiaN; a MIG instance's is its GPU's.
	Minor int `json:"minor,omitzero"`
	// Percent is the part of a whole GPU's multiprocessors that a MIG instance has, 0 for a
	// whole GPU. Parent is the UUID of the GPU of which it is an instance.
	Percent int    `json:"percent,omitzero"`
	Parent  string `json:"parent,omitempty"`
	// Divided: MIG is enabled, and only its MIG instances can be used.
	Divided bool `json:"divided,omitempty"`
	// Unshareable says why it cannot be shared; "" if it can.
	Unshareable string `json:"unshareable,omitempty"`
	// Whole: instances use it, one at a time, because it cannot be shared.
	Whole bool `json:"whole,omitempty"`
	// Lost says why it cannot be used any more; "" if it can.
	Lost string `json:"lost,omitempty"`
	// Gone: it is lost because the driver does not list it any more.
	Gone bool `json:"gone,omitempty"`
	// Dedicated: the cluster gives it out, to one container at a time, and Grant says by which resource of
	// the container; "" for a ResourceClaim. No agent publishes that.
	Dedicated bool   `json:"-"`
	Grant     string `json:"-"`
	// Driver is the version of its driver if the inventory's is not known.
	Driver string `json:"-"`
	// PipeDirectory is where its own MPS control daemon listens; "" for the inventory's, or for none
	// if it is given out whole.
	PipeDirectory string `json:"pipeDirectory,omitempty"`
}

// percent is the device's multiprocessors in % of a GPU's.
func (d *Device) percent() int {
	if d.Percent == 0 {
		return 100
	}
	return d.Percent
}

// Inventory describes a node's GPUs and how they are allocated.
type Inventory struct {
	Devices []Device `json:"devices"`
	// Driver is the driver's version, CUDA the highest CUDA version that it supports,
	// for example "12.4".
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// Sharing says how the GPUs are allocated, Reason why they are not shared.
	Sharing Sharing `json:"sharing"`
	Reason  string  `json:"reason,omitempty"`
	// Claimed: NVIDIA's device plugin gave the shared GPUs to the agent, and to nobody else.
	Claimed bool `json:"claimed,omitempty"`
	// RuntimeClass is the RuntimeClass with which a container reaches its GPU, "" for the
	// node's default.
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// PipeDirectory is where one MPS control daemon for all shared GPUs listens on the node; "" if
	// each has its own. SharedMemory is the /dev/shm that daemons share with their clients; "" for
	// the node's.
	PipeDirectory string `json:"pipeDirectory,omitempty"`
	SharedMemory  string `json:"sharedMemory,omitempty"`
	// Alive is when the node agent last said so, at least every [Heartbeat]; zero if somebody else
	// wrote the inventory, or an agent that does not say so.
	Alive time.Time `json:"alive,omitzero"`
}

// Heartbeat is how often a node agent says that it lives. It is long beside what a kubelet writes.
const Heartbeat = 5 * time.Minute

// silence is how long an agent may say nothing: three heartbeats and the difference of two
// machines' clocks.
const silence = 4 * Heartbeat

// Dead reports whether the agent that wrote the inventory has said nothing for so long that it is
// not trusted any more.
func (i Inventory) Dead(now time.Time) bool {
	return !i.Alive.IsZero() && now.Sub(i.Alive) > silence
}

// maxDevices is more than any machine has.
const maxDevices = 256

// Parse reads and checks an inventory, because annotations can be edited by hand. An error
// names the invalid field.
func Parse(text string) (Inventory, error) {
	var i Inventory
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Inventory{}, fmt.Errorf("%s is not an inventory of GPUs: %w", InventoryAnnotation, err)
	}
	if err := i.check(); err != nil {
		return Inventory{}, fmt.Errorf("%s: %w", InventoryAnnotation, err)
	}
	return i, nil
}

// String returns the JSON that [Parse] reads.
func (i Inventory) String() string {
	text, err := json.Marshal(i)
	if err != nil { // This cannot happen: it contains only strings and numbers.
		return "{}"
	}
	return string(text)
}

func (i Inventory) check() error {
	switch i.Sharing {
	case None, MPS, Whole:
	default:
		return fmt.Errorf("sharing is %q: it must be %s, %s or %s", i.Sharing, None, MPS, Whole)
	}
	if len(i.Devices) > maxDevices {
		return fmt.Errorf("devices has %d devices: it must have at most %d", len(i.Devices), maxDevices)
	}
	if i.PipeDirectory != "" && !strings.HasPrefix(i.PipeDirectory, "/") {
		return fmt.Errorf("pipeDirectory is %q: it must be an absolute path", i.PipeDirectory)
	}
	if i.SharedMemory != "" && !strings.HasPrefix(i.SharedMemory, "/") {
		return fmt.Errorf("sharedMemory is %q: it must be an absolute path", i.SharedMemory)
	}
	seen := map[string]bool{}
	for n, d := range i.Devices {
		switch {
		case d.UUID == "" || strings.ContainsAny(d.UUID, ", \t\n"):
			return fmt.Errorf("devices[%d].uuid is %q: it must name one GPU", n, d.UUID)
		case seen[d.UUID]:
			return fmt.Errorf("devices[%d].uuid is %s: it must not appear twice", n, d.UUID)
		case d.PipeDirectory != "" && !strings.HasPrefix(d.PipeDirectory, "/"), i.daemonIsMissing(&i.Devices[n]):
			return fmt.Errorf("devices[%d].pipeDirectory is %q: it must be an absolute path", n, d.PipeDirectory)
		case d.Memory < 0 || d.Memory > 1<<50:
			return fmt.Errorf("devices[%d].memory is %d: it must be a number of bytes from 0 to 2^50", n, d.Memory)
		case d.SMs < 0:
			return fmt.Errorf("devices[%d].sms is %d: it must not be below 0", n, d.SMs)
		case d.Percent < 0 || d.Percent > 100:
			return fmt.Errorf("devices[%d].percent is %d: it must be 0 to 100", n, d.Percent)
		}
		seen[d.UUID] = true
	}
	return nil
}

// daemonIsMissing reports whether a GPU is to be shared and no MPS daemon is named for it.
func (i Inventory) daemonIsMissing(d *Device) bool {
	return i.Sharing == MPS && d.Unshareable == "" && d.Lost == "" && d.PipeDirectory == "" && i.PipeDirectory == ""
}

// Kind names a GPU's model and driver, on which times depend: for example "NVIDIA A100-SXM4-40GB, driver
// 580.95.05". A MIG instance has its GPU's.
func Kind(model, driver string) string { return model + ", driver " + driver }

// dedicated ends the kinds of GPUs that the cluster gives out.
const dedicated = ", whole"

// IsDedicated reports whether GPUs of a kind are [Device.Dedicated].
func IsDedicated(kind string) bool { return strings.HasSuffix(kind, dedicated) }

// KindOf is the kind of a device. A dedicated one has a kind of its own: models that share GPUs have no
// instances there.
func (i Inventory) KindOf(d *Device) string {
	kind := Kind(d.Model, cmp.Or(d.Driver, i.Driver))
	if d.Dedicated {
		kind += dedicated
	}
	return kind
}

// Shareable returns the GPUs that are shared; none unless Sharing is MPS.
func (i Inventory) Shareable() []Device {
	if i.Sharing != MPS {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(i.Devices), func(d Device) bool { return d.Unshareable != "" })
}

// Usable returns the GPUs that instances use, in shares or whole.
func (i Inventory) Usable() []Device {
	return slices.DeleteFunc(slices.Clone(i.Devices), func(d Device) bool {
		return !d.Whole && (i.Sharing != MPS || d.Unshareable != "")
	})
}

// Total returns what all instances together may have of the node's GPUs that are not lost: a
// percentage, 100 for each whole GPU, and memory in bytes.
func (i Inventory) Total() (percent int, memory int64) {
	for _, d := range i.Usable() {
		if d.Lost == "" {
			percent, memory = percent+d.percent(), memory+d.Memory
		}
	}
	return percent, memory
}
