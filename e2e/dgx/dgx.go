// Package dgx is a stand-in for NVIDIA's driver on a DGX A100, with its eight GPUs, and for the MPS
// control program, for tests on machines without a GPU. Faults are injected: XIDs, GPUs that are lost,
// daemons that die. It shares nothing and computes nothing. Begin with [New] and [Control].
package dgx

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// Machine is the driver of one machine.
type Machine struct {
	*dgxa100.Server
	events chan nvml.EventData

	mu  sync.Mutex
	bad map[int]nvml.Return
	mig map[int][]nvml.Device
}

// cores is the number of an A100's cores: 64 in each of 108 multiprocessors.
const cores = 108 * 64

// New returns a machine whose GPUs work.
func New() *Machine {
	m := &Machine{Server: dgxa100.New(), events: make(chan nvml.EventData, 64), bad: map[int]nvml.Return{}, mig: map[int][]nvml.Device{}}
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: m.wait, FreeFunc: func() nvml.Return { return nvml.SUCCESS }}, nvml.SUCCESS
	}
	for n := range m.Devices {
		d := m.Device(n)
		d.GetNumGpuCoresFunc = func() (int, nvml.Return) { return cores, nvml.SUCCESS }
		d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) {
			return nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError, nvml.SUCCESS
		}
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
		memory := d.GetMemoryInfoFunc
		d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
			if r := m.answer(n); r != nvml.SUCCESS {
				return nvml.Memory{}, r
			}
			return memory()
		}
		d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
		d.GetMigDeviceHandleByIndexFunc = func(k int) (nvml.Device, nvml.Return) {
			if k >= len(m.mig[n]) {
				return nil, nvml.ERROR_NOT_FOUND
			}
			return m.mig[n][k], nvml.SUCCESS
		}
	}
	return m
}

// Device returns the n-th GPU.
func (m *Machine) Device(n int) *dgxa100.Device { return m.Devices[n].(*dgxa100.Device) }

// Divide enables MIG on the n-th GPU, with instances of that many of the seven slices each. It returns
// their UUIDs.
func (m *Machine) Divide(n int, slices ...int) (uuids []string) {
	m.Device(n).SetMigMode(nvml.DEVICE_MIG_ENABLE)
	for k, count := range slices {
		uuid := fmt.Sprintf("MIG-%d-%d", n, k)
		uuids = append(uuids, uuid)
		m.mig[n] = append(m.mig[n], &mock.Device{
			GetUUIDFunc:       func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: uint64(count) * 5 << 30}, nvml.SUCCESS },
			GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
				return nvml.DeviceAttributes{MultiprocessorCount: uint32(count * 14), GpuInstanceSliceCount: uint32(count)}, nvml.SUCCESS
			},
		})
	}
	return uuids
}

// XID makes the driver report an XID of the n-th GPU.
func (m *Machine) XID(n int, xid uint64) {
	m.events <- nvml.EventData{Device: m.Devices[n], EventType: nvml.EventTypeXidCriticalError, EventData: xid}
}

// Lose makes the n-th GPU fail every read as lost.
func (m *Machine) Lose(n int) { m.Fail(n, nvml.ERROR_GPU_IS_LOST) }

// Fail makes every read of the n-th GPU return r; nvml.SUCCESS makes it work again.
func (m *Machine) Fail(n int, r nvml.Return) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bad[n] = r
}

// answer is what a read of the n-th GPU returns.
func (m *Machine) answer(n int) nvml.Return {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bad[n]
}

// wait returns the next event, or a timeout.
func (m *Machine) wait(milliseconds uint32) (nvml.EventData, nvml.Return) {
	select {
	case e := <-m.events:
		return e, nvml.SUCCESS
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
}

// control answers as nvidia-cuda-mps-control does. It writes the daemon's environment to the file
// "environment" in the pipe directory. With BROKEN in the environment or a file "broken" there, a
// daemon does not start, with DEAF it ignores its end. A file "silent" has a number: so many questions
// get no answer, and "silent.asked" lists them. The file "servers" has the users for whom a server was
// started, and with a file "serverless" none starts.
const control = `#!/bin/sh
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
if [ "$1" = -f ]; then
	[ -n "$BROKEN" ] || [ -e "$CUDA_MPS_PIPE_DIRECTORY/broken" ] && { echo "no such device" >> "$CUDA_MPS_LOG_DIRECTORY/control.log"; exit 1; }
	env > "$CUDA_MPS_PIPE_DIRECTORY/environment"
	rm -f "$CUDA_MPS_PIPE_DIRECTORY/servers"
	[ -n "$DEAF" ] && trap '' TERM
	echo $$ > "$pid"
	while [ -e "$pid" ] || [ -n "$DEAF" ]; do sleep 0.02; done
	exit 0
fi
read -r command
[ -e "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null || { echo "Cannot find MPS control daemon process"; exit 1; }
silent=$CUDA_MPS_PIPE_DIRECTORY/silent
if [ -e "$silent" ]; then
	echo "$command" >> "$silent.asked"
	[ "$(wc -l < "$silent.asked")" -ge "$(cat "$silent")" ] && rm "$silent"
	exit 1
fi
case $command in
quit) rm "$pid" ;;
get_default_active_thread_percentage) echo 100.0 ;;
get_server_list) cat "$CUDA_MPS_PIPE_DIRECTORY/servers" 2>/dev/null || true ;;
start_server*)
	[ -e "$CUDA_MPS_PIPE_DIRECTORY/serverless" ] && { echo "Failed to start MPS server"; exit 1; }
	echo "${command##* }" >> "$CUDA_MPS_PIPE_DIRECTORY/servers"
	;;
esac
`

// Control writes a stand-in for the MPS control program into a directory and returns its path.
func Control(dir string) (string, error) {
	program := filepath.Join(dir, "nvidia-cuda-mps-control")
	if err := os.WriteFile(program, []byte(control), 0o755); err != nil {
		return "", err
	}
	return program, nil
}
