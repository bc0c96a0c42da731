package device

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/faas-infer/faas-infer/e2e/dgx"
)

// watched runs Watch in a bubble and returns what it reports.
type watched struct {
	mu          sync.Mutex
	lost, notes []string
}

func (w *watched) seen() (lost, notes string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lost, "; "), strings.Join(w.notes, "; ")
}

// watch watches a machine for a while.
func watch(t *testing.T, prepare func(m *dgx.Machine), during func(m *dgx.Machine, pass func(time.Duration))) (lost, notes string) {
	synctest.Test(t, func(t *testing.T) {
		m := dgx.New()
		names := map[string]string{"": "all"}
		for n := range m.Devices {
			names[m.Device(n).UUID] = fmt.Sprint(n)
		}
		prepare(m)
		i, err := Read(m)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w, done := &watched{}, make(chan error)
		name := func(uuid string) string {
			if n, ok := names[uuid]; ok {
				return n
			}
			return uuid
		}
		go func() {
			done <- Watch(ctx, m, WatchOptions{
				Devices: i.Devices, Every: 5 * time.Second,
				Lost: func(uuid, why string) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.lost = append(w.lost, name(uuid)+" "+why)
				},
				Note: func(uuid, what string) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.notes = append(w.notes, name(uuid)+" "+what)
				},
			})
		}()
		during(m, func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		lost, notes = w.seen()
	})
	return lost, notes
}

// An XID that ends a GPU is reported once, one that is a process's fault is noted, and a GPU that
// cannot be read is lost: at once if the driver says so, otherwise after three reads.
func TestWatch(t *testing.T) {
	lost, notes := watch(t, func(m *dgx.Machine) { m.Divide(6, 3, 4) }, func(m *dgx.Machine, pass func(time.Duration)) {
		m.XID(2, 79)
		m.XID(2, 48)
		m.XID(3, 31)
		m.XID(6, 95)
		m.XID(7, 555)
		pass(time.Second)
		m.Lose(1)
		m.Fail(4, nvml.ERROR_UNKNOWN)
		pass(11 * time.Second)
		m.Fail(4, nvml.SUCCESS) // Two reads fail.
		pass(6 * time.Second)
		m.Fail(4, nvml.ERROR_UNKNOWN)
		pass(16 * time.Second)
	})
	for _, want := range []string{"2 XID 79: the GPU has fallen off the bus", "MIG-6-0 XID 95", "MIG-6-1 XID 95", "7 XID 555", "1 it cannot be read: ERROR_GPU_IS_LOST", "4 it cannot be read"} {
		if want = strings.Replace(want, "ERROR_GPU_IS_LOST", nvml.ERROR_GPU_IS_LOST.Error(), 1); strings.Count(lost, want) != 1 {
			t.Errorf("%q is not lost once: %s", want, lost)
		}
	}
	if strings.Count(lost, ";") != 6 || notes != "3 XID 31: a process used a wrong address" {
		t.Errorf("lost %s; noted %s", lost, notes)
	}
}

// A GPU that has fallen off the bus makes NVML answer at once; Watch does not ask without a pause.
func TestWatchPausesWithoutAGPU(t *testing.T) {
	var asked atomic.Int64
	lost, _ := watch(t, func(m *dgx.Machine) {
		m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
			return &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }, WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				if asked.Add(1) > 1000 {
					time.Sleep(time.Minute)
				}
				return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST
			}}, nvml.SUCCESS
		}
	}, func(m *dgx.Machine, pass func(time.Duration)) {
		m.Lose(1)
		pass(10 * time.Second)
	})
	if n := asked.Load(); n > 50 || !strings.HasPrefix(lost, "1 ") {
		t.Errorf("asked %d times in 10 s; lost %q", n, lost)
	}
}

// Without events the devices are only read.
func TestWatchWithoutEvents(t *testing.T) {
	for name, spoil := range map[string]func(m *dgx.Machine){
		"no set": func(m *dgx.Machine) {
			m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
		},
		"none of one": func(m *dgx.Machine) {
			m.Device(0).GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0, nvml.SUCCESS }
		},
	} {
		lost, notes := watch(t, spoil, func(m *dgx.Machine, pass func(time.Duration)) {
			pass(time.Second)
			m.Lose(0)
			pass(6 * time.Second)
		})
		if !strings.HasPrefix(lost, "0 it cannot be read") || notes == "" {
			t.Errorf("%s: lost %q, noted %q", name, lost, notes)
		}
	}
	m := dgx.New()
	m.InitFunc = func() nvml.Return { return nvml.ERROR_NO_PERMISSION }
	if err := Watch(t.Context(), m, WatchOptions{}); err == nil {
		t.Error("it watches without NVML")
	}
}
