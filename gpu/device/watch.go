package device

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/gpu"
)

// WatchOptions say what [Watch] reports.
type WatchOptions struct {
	// Devices are watched.
	Devices []gpu.Device
	// Every is the time between two health reads of a device.
	Every time.Duration
	// Lost gets the UUID of a device that cannot be used any more, and the reason, once. A GPU's MIG
	// instances are lost with it.
	Lost func(uuid, why string)
	// Note gets what the driver reports of a process or of an error that it corrected, and why events
	// are missing. The device stays in use.
	Note func(uuid, what string)
}

const (
	// eventWait is how long NVML waits for an event. Watch ends within this time.
	eventWait = 500 * time.Millisecond
	// failedReads is the number of failed health reads in a row after which a device is lost. If the
	// driver says that it is lost, one is enough.
	failedReads = 3
)

// harmless are the XIDs that are a process's own fault or say that an error was corrected: the device
// can still be used. All others end it, as for NVIDIA's device plugin.
var harmless = map[uint64]string{
	13: "graphics engine exception", 31: "a process used a wrong address", 43: "a process's channel was reset",
	45: "channels of a process that ended were removed", 63: "a memory row is to be remapped", 68: "video processor exception",
	92: "many corrected memory errors", 109: "a process's context switch timed out",
}

// meanings are names of XIDs that end a device.
var meanings = map[uint64]string{
	48: "uncorrectable memory error", 62: "internal halt", 64: "a memory row could not be remapped", 74: "NVLink error",
	79: "the GPU has fallen off the bus", 94: "contained memory error", 95: "uncontained memory error", 119: "the GPU's firmware does not answer", 120: "the GPU's firmware failed",
}

// watcher follows the devices of one machine.
type watcher struct {
	WatchOptions
	library nvml.Interface
	// handles has the whole GPUs, families the UUIDs that are lost with each.
	handles  map[nvml.Device]string
	families map[string][]string
	failures map[string]int
	gone     map[string]bool
}

// Watch reports devices that fail, by the driver's events (XID, ECC) and by reading them, until ctx
// ends. It returns an error if NVML does not start. Where the driver has no events, for example in
// some virtual machines, Watch only reads.
func Watch(ctx context.Context, library nvml.Interface, o WatchOptions) error {
	if r := library.Init(); r != nvml.SUCCESS {
		return fmt.Errorf("watch GPUs: start NVML: %w", r)
	}
	defer library.Shutdown()
	w := &watcher{WatchOptions: o, library: library, handles: map[nvml.Device]string{}, families: map[string][]string{}, failures: map[string]int{}, gone: map[string]bool{}}
	for _, d := range o.Devices {
		parent := d.UUID
		if d.Parent != "" {
			parent = d.Parent
		}
		w.families[parent] = append(w.families[parent], d.UUID)
	}
	set, r := library.EventSetCreate()
	if r != nvml.SUCCESS {
		o.Note("", fmt.Sprintf("the driver has no events: %v", r))
		set = nil
	} else {
		defer set.Free()
	}
	for uuid := range w.families {
		w.register(uuid, set)
	}
	for read := time.Now(); ctx.Err() == nil; {
		set = w.event(ctx, set)
		if now := time.Now(); now.Sub(read) >= o.Every {
			read = now
			w.readAll()
		}
	}
	return nil
}

// register asks for a GPU's events.
func (w *watcher) register(uuid string, set nvml.EventSet) {
	handle, r := w.library.DeviceGetHandleByUUID(uuid)
	if r != nvml.SUCCESS {
		w.lose(uuid, fmt.Sprintf("NVML does not find it: %v", r))
		return
	}
	w.handles[handle] = uuid
	if set == nil {
		return
	}
	types, r := handle.GetSupportedEventTypes()
	if types &= nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError; r == nvml.SUCCESS && types != 0 {
		r = handle.RegisterEvents(types, set)
	}
	if r != nvml.SUCCESS || types == 0 {
		w.Note(uuid, fmt.Sprintf("the driver reports no errors of this GPU (%v); it is only read from time to time", r))
	}
}

// event waits for one event and handles it. It returns the set, or nil once that does not work.
func (w *watcher) event(ctx context.Context, set nvml.EventSet) nvml.EventSet {
	if set == nil {
		backoff.Wait(ctx, eventWait)
		return nil
	}
	data, r := set.Wait(uint32(eventWait.Milliseconds()))
	switch r {
	case nvml.SUCCESS:
		w.handle(data)
	case nvml.ERROR_TIMEOUT:
	case nvml.ERROR_GPU_IS_LOST:
		w.readAll()
		backoff.Wait(ctx, eventWait) // NVML answers at once for as long as the GPU is missing.
	default:
		w.Note("", fmt.Sprintf("the driver's events end: %v", r))
		return nil
	}
	return set
}

// handle decides what an event means for its device.
func (w *watcher) handle(e nvml.EventData) {
	uuid, known := w.handles[e.Device]
	if !known {
		w.readAll()
		return
	}
	if e.EventType == nvml.EventTypeDoubleBitEccError {
		w.lose(uuid, "ECC: uncorrectable memory error")
		return
	}
	if what, ok := harmless[e.EventData]; ok {
		w.Note(uuid, fmt.Sprintf("XID %d: %s", e.EventData, what))
		return
	}
	w.lose(uuid, strings.TrimSuffix(fmt.Sprintf("XID %d: %s", e.EventData, meanings[e.EventData]), ": "))
}

// readAll reads every GPU.
func (w *watcher) readAll() {
	for handle, uuid := range w.handles {
		_, r := handle.GetMemoryInfo()
		switch {
		case r == nvml.SUCCESS:
			w.failures[uuid] = 0
			continue
		case r == nvml.ERROR_GPU_IS_LOST:
			w.failures[uuid] = failedReads
		default:
			w.failures[uuid]++
		}
		if w.failures[uuid] >= failedReads {
			w.lose(uuid, fmt.Sprintf("it cannot be read: %v", r))
		}
	}
}

// lose reports that a GPU and its MIG instances are lost.
func (w *watcher) lose(parent, why string) {
	if w.gone[parent] {
		return
	}
	w.gone[parent] = true
	for _, uuid := range slices.Sorted(slices.Values(w.families[parent])) {
		w.Lost(uuid, why)
	}
}
