// Package device controls the GPUs of one machine. [Read] lists them with NVIDIA's driver
// (NVML), and [StartMPS] runs the MPS control daemon that shares them. Package gpu decides
// which instances share a GPU. Begin reading at [Read] and [StartMPS].
package device

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/gpu"
)

// Read lists the machine's GPUs by index. It does not decide how they are allocated, so
// Sharing is [gpu.None]. The error wraps [gpu.ErrNone] if there is no driver or no GPU.
func Read(library nvml.Interface) (i gpu.Inventory, err error) {
	if r := library.Init(); r != nvml.SUCCESS {
		if r == nvml.ERROR_LIBRARY_NOT_FOUND || r == nvml.ERROR_DRIVER_NOT_LOADED {
			return i, fmt.Errorf("%w: NVIDIA's driver is missing (%w)", gpu.ErrNone, r)
		}
		return i, fmt.Errorf("start NVML: %w", r)
	}
	defer func() {
		if r := library.Shutdown(); r != nvml.SUCCESS && err == nil {
			err = fmt.Errorf("end NVML: %w", r)
		}
	}()
	i.Sharing = gpu.None
	if i.Driver, err = ask("the driver's version", library.SystemGetDriverVersion); err != nil {
		return i, err
	}
	version, err := ask("CUDA's version", library.SystemGetCudaDriverVersion)
	if err != nil {
		return i, err
	}
	i.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	count, err := ask("the number of GPUs", library.DeviceGetCount)
	if err != nil {
		return i, err
	}
	for n := range count {
		handle, r := library.DeviceGetHandleByIndex(n)
		if r != nvml.SUCCESS {
			return i, fmt.Errorf("GPU %d: %w", n, r)
		}
		d, err := device(handle)
		if err != nil {
			return i, fmt.Errorf("GPU %d: %w", n, err)
		}
		d.Index = n
		i.Devices = append(i.Devices, d)
	}
	if len(i.Devices) == 0 {
		return i, fmt.Errorf("%w: NVIDIA's driver %s finds none", gpu.ErrNone, i.Driver)
	}
	return i, nil
}

// ask calls an NVML query and turns a failure into an error.
func ask[T any](what string, question func() (T, nvml.Return)) (T, error) {
	answer, r := question()
	if r != nvml.SUCCESS {
		return answer, fmt.Errorf("ask NVML for %s: %w", what, r)
	}
	return answer, nil
}

func device(handle nvml.Device) (d gpu.Device, err error) {
	if d.UUID, err = ask("the UUID", handle.GetUUID); err != nil {
		return d, err
	}
	if d.Model, err = ask("the name", handle.GetName); err != nil {
		return d, err
	}
	memory, err := ask("the memory", handle.GetMemoryInfo)
	if err != nil {
		return d, err
	}
	d.Memory = int64(memory.Total)
	major, minor, r := handle.GetCudaComputeCapability()
	if r != nvml.SUCCESS {
		return d, fmt.Errorf("ask NVML for the compute capability: %w", r)
	}
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	if cores, r := handle.GetNumGpuCores(); r == nvml.SUCCESS {
		d.SMs = cores / coresPerSM(major, minor)
	} else if r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
		return d, fmt.Errorf("ask NVML for the number of cores: %w", r)
	}
	mig, _, r := handle.GetMigMode()
	switch {
	case r == nvml.SUCCESS && mig == nvml.DEVICE_MIG_ENABLE:
		d.Unshareable = "MIG is enabled: NVIDIA's device plugin allocates its MIG instances"
	case r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND:
		return d, fmt.Errorf("ask NVML for the MIG mode: %w", r)
	case major < 7:
		d.Unshareable = "compute capability " + d.Capability + ": MPS limits shares only from 7.0 (Volta) on"
	}
	return d, nil
}

// coresPerSM returns the number of cores of a multiprocessor. NVML counts cores, and
// shares count multiprocessors.
func coresPerSM(major, minor int) int {
	switch {
	case major == 3:
		return 192
	case major == 7, major == 8 && minor == 0, major == 6 && minor == 0:
		return 64
	}
	return 128
}

// Only makes all devices unshareable except those named by index or UUID. Without names,
// it changes nothing. It returns an error for an unknown device or one named twice.
func Only(i gpu.Inventory, names []string) (gpu.Inventory, error) {
	if len(names) == 0 {
		return i, nil
	}
	chosen := map[int]bool{}
	for _, name := range names {
		at := slices.IndexFunc(i.Devices, func(d gpu.Device) bool { return d.UUID == name || strconv.Itoa(d.Index) == name })
		if at < 0 {
			return i, fmt.Errorf("there is no GPU %q: name some of %s", name, list(i.Devices))
		}
		if chosen[at] {
			return i, fmt.Errorf("GPU %q is named twice", name)
		}
		chosen[at] = true
	}
	i.Devices = slices.Clone(i.Devices)
	for n := range i.Devices {
		if !chosen[n] {
			i.Devices[n].Unshareable = cmp.Or(i.Devices[n].Unshareable, "it is not among the devices that are named for sharing")
		}
	}
	return i, nil
}

func list(devices []gpu.Device) string {
	var names []string
	for _, d := range devices {
		names = append(names, fmt.Sprintf("%d (%s)", d.Index, d.UUID))
	}
	return strings.Join(names, ", ")
}
