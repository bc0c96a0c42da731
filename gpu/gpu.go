// Package gpu holds what is known of a machine's GPUs and how they are shared:
// [Inventory] is what a node has to give, [Share] what one instance gets of one
// GPU, by CUDA MPS (INFless §4). Which GPU a new share goes on is [Inventory.Place].
//
// The package itself is pure. Package gpu/device reads the driver and keeps the MPS
// control daemon.
package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// InventoryAnnotation is the annotation of a Kubernetes node that holds its
	// [Inventory] as JSON.
	InventoryAnnotation = "faas-infer.dev/gpus"
	// DeviceAnnotation is the annotation of a pod that holds the UUID of the GPU
	// of which it has a share.
	DeviceAnnotation = "faas-infer.dev/gpu"
	// WholeResource is the resource by which NVIDIA's device plugin hands out whole
	// GPUs.
	WholeResource = "nvidia.com/gpu"
)

// ErrNone is what errors wrap that say that there is no GPU, or none that is free
// enough.
var ErrNone = errors.New("no GPU")

// Sharing says how a node's GPUs are given out.
type Sharing string

// The ways.
const (
	// None: not at all; Reason says why.
	None Sharing = "none"
	// MPS: in shares, by us.
	MPS Sharing = "mps"
	// Whole: each to one container, by NVIDIA's device plugin.
	Whole Sharing = "whole"
)

// Device is one GPU.
type Device struct {
	// Index is the driver's, UUID what names the GPU for good.
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	// Model is the driver's name of it.
	Model string `json:"model"`
	// Memory in bytes.
	Memory int64 `json:"memory"`
	// SMs counts its multiprocessors; 0 where the driver does not tell.
	SMs int `json:"sms,omitzero"`
	// Capability is the compute capability, as "8.0".
	Capability string `json:"capability"`
	// Unshareable says why no shares of it are given out; "" if they are.
	Unshareable string `json:"unshareable,omitempty"`
}

// Inventory is what a node has.
type Inventory struct {
	Devices []Device `json:"devices"`
	// Driver is the driver's version, CUDA the highest that it supports, as "12.4".
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// Sharing says how the GPUs are given out, Reason why not in shares.
	Sharing Sharing `json:"sharing"`
	Reason  string  `json:"reason,omitempty"`
	// PipeDirectory is where the MPS control daemon listens on the node, and
	// SharedMemory the /dev/shm that it shares with its clients; "" for the node's.
	PipeDirectory string `json:"pipeDirectory,omitempty"`
	SharedMemory  string `json:"sharedMemory,omitempty"`
}

// maxDevices is more than any machine has.
const maxDevices = 256

// Parse reads an inventory. What is no inventory is an error that names the field:
// annotations can be edited by hand.
func Parse(text string) (Inventory, error) {
	var i Inventory
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Inventory{}, fmt.Errorf("%s is no inventory of GPUs: %w", InventoryAnnotation, err)
	}
	if err := i.check(); err != nil {
		return Inventory{}, fmt.Errorf("%s: %w", InventoryAnnotation, err)
	}
	return i, nil
}

// String is the JSON that [Parse] reads.
func (i Inventory) String() string {
	text, err := json.Marshal(i)
	if err != nil { // It has texts and numbers only.
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
		return fmt.Errorf("there are %d devices: %d are the most", len(i.Devices), maxDevices)
	}
	if i.Sharing == MPS && !strings.HasPrefix(i.PipeDirectory, "/") {
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
			return fmt.Errorf("devices[%d].uuid: %s is there twice", n, d.UUID)
		case d.Memory < 0 || d.Memory > 1<<50:
			return fmt.Errorf("devices[%d].memory is %d: it must be a number of bytes", n, d.Memory)
		case d.SMs < 0:
			return fmt.Errorf("devices[%d].sms is %d: it must not be below 0", n, d.SMs)
		}
		seen[d.UUID] = true
	}
	return nil
}

// Shareable are the GPUs of which shares are given out; none unless MPS serves.
func (i Inventory) Shareable() []Device {
	if i.Sharing != MPS {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(i.Devices), func(d Device) bool { return d.Unshareable != "" })
}

// Total is what instances may have of the node altogether: % of GPUs, 100 for each,
// and bytes of their memory.
func (i Inventory) Total() (percent int, memory int64) {
	for _, d := range i.Shareable() {
		percent, memory = percent+100, memory+d.Memory
	}
	return percent, memory
}
