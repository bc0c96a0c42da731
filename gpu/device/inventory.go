// Package device controls the GPUs of one machine. [Read] lists them with NVIDIA's driver
// (NVML), and [StartMPS] runs the MPS control daemon that shares them. Package gpu decides
// which instances share a GPU. Begin reading at [Read] and [StartMPS].
package device

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/gpu"
)

// Read lists the machine's GPUs by index, each with its MIG instances behind it. It does not
// decide how they are allocated, so Sharing is [gpu.None]. It leaves out a GPU that is lost; Reason
// then names it. The error wraps [gpu.ErrNone] if there is no driver or no GPU.
func Read(library nvml.Interface) (i gpu.Inventory, err error) {
	if r := library.Init(); r != nvml.SUCCESS {
		if r == nvml.ERROR_LIBRARY_NOT_FOUND || r == nvml.ERROR_DRIVER_NOT_LOADED {
			return i, fmt.Errorf("%w: NVIDIA's driver is missing (%w): install it and check it with nvidia-smi", gpu.ErrNone, r)
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
	var lost []error
	for n := range count {
		found, err := devices(library, n)
		if errors.Is(err, nvml.ERROR_GPU_IS_LOST) {
			lost = append(lost, err)
			continue
		}
		if err != nil {
			return i, err
		}
		i.Devices = append(i.Devices, found...)
	}
	if len(lost) > 0 {
		i.Reason = errors.Join(lost...).Error()
	}
	switch {
	case len(i.Devices) == 0 && len(lost) > 0:
		return i, errors.Join(lost...)
	case len(i.Devices) == 0:
		return i, fmt.Errorf("%w: NVIDIA's driver %s finds none", gpu.ErrNone, i.Driver)
	}
	return i, nil
}

// devices reads the n-th GPU, and behind it its MIG instances.
func devices(library nvml.Interface, n int) ([]gpu.Device, error) {
	handle, r := library.DeviceGetHandleByIndex(n)
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("GPU %d: %w", n, r)
	}
	d, mig, err := device(handle)
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", n, err)
	}
	d.Index = n
	if !mig {
		return []gpu.Device{d}, nil
	}
	instances, err := migInstances(handle, d)
	if err != nil {
		return nil, fmt.Errorf("GPU %d: %w", n, err)
	}
	return append([]gpu.Device{d}, instances...), nil
}

// migInstances lists the MIG instances of a GPU. They are not given out in shares.
func migInstances(handle nvml.Device, parent gpu.Device) (all []gpu.Device, err error) {
	count, err := ask("the number of MIG instances", handle.GetMaxMigDeviceCount)
	if err != nil {
		return nil, err
	}
	for k := range count {
		instance, r := handle.GetMigDeviceHandleByIndex(k)
		if r == nvml.ERROR_NOT_FOUND || r == nvml.ERROR_INVALID_ARGUMENT {
			continue // The GPU could have more instances than it has.
		}
		if r != nvml.SUCCESS {
			return nil, fmt.Errorf("ask NVML for MIG instance %d: %w", k, r)
		}
		d := parent
		d.Parent, d.Divided, d.Unshareable = parent.UUID, false, "it is a MIG instance, which is a share already"
		if d.UUID, err = ask("the UUID of a MIG instance", instance.GetUUID); err != nil {
			return nil, err
		}
		memory, err := ask("the memory of a MIG instance", instance.GetMemoryInfo)
		if err != nil {
			return nil, err
		}
		d.Memory = int64(memory.Total)
		attributes, err := ask("the attributes of a MIG instance", instance.GetAttributes)
		if err != nil {
			return nil, err
		}
		d.SMs = int(attributes.MultiprocessorCount)
		d.Percent = part(d.SMs, parent.SMs, int(attributes.GpuInstanceSliceCount))
		all = append(all, d)
	}
	return all, nil
}

// migSlices is the number of slices into which MIG divides a GPU's multiprocessors.
const migSlices = 7

// part returns a MIG instance's multiprocessors in % of its GPU's, from its slices if the driver
// does not report those.
func part(sms, of, slices int) int {
	if sms > 0 && of > 0 {
		return max(1, min(100, sms*100/of))
	}
	return max(1, min(100, slices*100/migSlices))
}

// ask calls an NVML query and turns a failure into an error.
func ask[T any](what string, question func() (T, nvml.Return)) (T, error) {
	answer, r := question()
	if r != nvml.SUCCESS {
		return answer, fmt.Errorf("ask NVML for %s: %w", what, r)
	}
	return answer, nil
}

// device reads a GPU. mig says that it is divided into MIG instances.
func device(handle nvml.Device) (d gpu.Device, mig bool, err error) {
	if d.UUID, err = ask("the UUID", handle.GetUUID); err != nil {
		return d, false, err
	}
	if d.Model, err = ask("the name", handle.GetName); err != nil {
		return d, false, err
	}
	if d.Minor, err = ask("the number of its file", handle.GetMinorNumber); err != nil {
		return d, false, err
	}
	memory, err := ask("the memory", handle.GetMemoryInfo)
	if err != nil {
		return d, false, err
	}
	d.Memory = int64(memory.Total)
	major, minor, r := handle.GetCudaComputeCapability()
	if r != nvml.SUCCESS {
		return d, false, fmt.Errorf("ask NVML for the compute capability: %w", r)
	}
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	if cores, r := handle.GetNumGpuCores(); r == nvml.SUCCESS {
		d.SMs = cores / coresPerSM(major, minor)
	} else if r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
		return d, false, fmt.Errorf("ask NVML for the number of cores: %w", r)
	}
	mode, _, r := handle.GetMigMode()
	mig = r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	d.Divided = mig
	switch {
	case mig:
		d.Unshareable = "MIG is enabled: NVIDIA's device plugin allocates its MIG instances"
	case r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND:
		return d, false, fmt.Errorf("ask NVML for the MIG mode: %w", r)
	case major < 7:
		d.Unshareable = "compute capability " + d.Capability + ": MPS limits shares only from 7.0 (Volta) on"
	}
	return d, mig, nil
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

// Select returns an inventory with the named devices only, by index or UUID; without names, with all.
// A GPU's name stands for its MIG instances, too. The error is that of an unknown name.
func Select(i gpu.Inventory, names []string) (gpu.Inventory, error) {
	if len(names) == 0 {
		return i, nil
	}
	var chosen []gpu.Device
	for _, name := range names {
		if !slices.ContainsFunc(i.Devices, func(d gpu.Device) bool { return named(&d, name) }) {
			return i, fmt.Errorf("there is no GPU %q: name some of %s", name, list(i.Devices))
		}
	}
	for _, d := range i.Devices {
		if slices.ContainsFunc(names, func(name string) bool { return named(&d, name) }) {
			chosen = append(chosen, d)
		}
	}
	i.Devices = chosen
	return i, nil
}

// named reports whether a name stands for a device.
func named(d *gpu.Device, name string) bool {
	return d.UUID == name || strconv.Itoa(d.Index) == name || d.Parent != "" && d.Parent == name
}

// Only makes all devices unshareable except those named by index or UUID. Without names,
// it changes nothing. It returns an error for an unknown device or one named twice.
func Only(i gpu.Inventory, names []string) (gpu.Inventory, error) {
	if len(names) == 0 {
		return i, nil
	}
	chosen := map[int]bool{}
	for _, name := range names {
		at := slices.IndexFunc(i.Devices, func(d gpu.Device) bool { return d.UUID == name || d.Parent == "" && strconv.Itoa(d.Index) == name })
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
		if d.Parent != "" {
			names = append(names, d.UUID)
			continue
		}
		names = append(names, fmt.Sprintf("%d (%s)", d.Index, d.UUID))
	}
	return strings.Join(names, ", ")
}
