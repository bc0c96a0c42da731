package device

import (
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/gpu"
)

func TestRead(t *testing.T) {
	s := dgx.New()
	i, err := Read(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Devices) != 8 || i.Driver != "550.54.15" || i.CUDA != "12.4" || i.Sharing != gpu.None {
		t.Errorf("%+v", i)
	}
	for n, d := range i.Devices {
		want := gpu.Device{Index: n, Minor: n, UUID: s.Device(n).UUID, Model: "Mock NVIDIA A100-SXM4-40GB", Memory: 40 << 30, SMs: 108, Capability: "8.0"}
		if d != want {
			t.Errorf("%+v, want %+v", d, want)
		}
	}
	if len(s.InitCalls()) != len(s.ShutdownCalls()) {
		t.Error("NVML is left open")
	}
	i.Sharing, i.PipeDirectory = gpu.MPS, "/run/mps"
	if percent, memory := i.Total(); percent != 800 || memory != 320<<30 {
		t.Errorf("%d %%, %d bytes", percent, memory)
	}
	if again, err := gpu.Parse(i.String()); err != nil || len(again.Devices) != 8 {
		t.Errorf("%v, %v", again, err)
	}
}

// The inventory lists unshareable GPUs with the reason.
func TestUnshareable(t *testing.T) {
	s := dgx.New()
	s.Devices[1].SetMigMode(nvml.DEVICE_MIG_ENABLE)
	old := s.Device(2)
	old.CudaComputeCapability = dgxa100.CudaComputeCapability{Major: 6, Minor: 1}
	old.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED }
	old.GetNumGpuCoresFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_FUNCTION_NOT_FOUND }
	i, err := Read(s)
	if err != nil {
		t.Fatal(err)
	}
	for n, says := range map[int]string{1: "MIG", 2: "6.1"} {
		if !strings.Contains(i.Devices[n].Unshareable, says) {
			t.Errorf("GPU %d: %q", n, i.Devices[n].Unshareable)
		}
	}
	if i.Devices[2].SMs != 0 || i.Devices[0].Unshareable != "" {
		t.Errorf("%+v", i.Devices)
	}
}

// A query that NVML refuses gives an error that names it. A machine without a driver or
// without a GPU gives gpu.ErrNone.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(s *dgx.Machine, d *dgxa100.Device)
		none  bool
		says  string
	}{
		{"no driver", func(s *dgx.Machine, _ *dgxa100.Device) {
			s.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
		}, true, "driver is missing"},
		{"no permission", func(s *dgx.Machine, _ *dgxa100.Device) {
			s.InitFunc = func() nvml.Return { return nvml.ERROR_NO_PERMISSION }
		}, false, "start NVML"},
		{"no GPU", func(s *dgx.Machine, _ *dgxa100.Device) {
			s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
		}, true, "finds none"},
		{"a lost GPU", func(s *dgx.Machine, _ *dgxa100.Device) {
			s.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
		}, false, "GPU 0"},
		{"no memory", func(_ *dgx.Machine, d *dgxa100.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN }
		}, false, "GPU 3: ask NVML for the memory"},
		{"no MIG mode", func(_ *dgx.Machine, d *dgxa100.Device) {
			d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_UNKNOWN }
		}, false, "MIG mode"},
	} {
		s := dgx.New()
		test.spoil(s, s.Device(3))
		if _, err := Read(s); err == nil || errors.Is(err, gpu.ErrNone) != test.none || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// The inventory of this machine survives writing and reading. Without a driver, Read says
// so.
func TestThisMachine(t *testing.T) {
	i, err := Read(nvml.New())
	switch {
	case errors.Is(err, gpu.ErrNone):
		t.Logf("this machine: %v", err)
	case err != nil:
		t.Fatal(err)
	default:
		if _, err := gpu.Parse(i.String()); err != nil {
			t.Error(err)
		}
	}
}

func TestOnly(t *testing.T) {
	i, err := Read(dgx.New())
	if err != nil {
		t.Fatal(err)
	}
	some, err := Only(i, []string{"2", i.Devices[5].UUID})
	if err != nil {
		t.Fatal(err)
	}
	some.Sharing = gpu.MPS
	if s := some.Shareable(); len(s) != 2 || s[0].Index != 2 || s[1].Index != 5 {
		t.Errorf("%+v", s)
	}
	if i.Devices[0].Unshareable != "" {
		t.Error("the argument was changed")
	}
	for says, names := range map[string][]string{"no GPU \"8\"": {"8"}, "no GPU \"\"": {""}, "twice": {"1", i.Devices[1].UUID}} {
		if _, err := Only(i, names); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", names, err)
		}
	}
}

// MIG instances follow their GPU, with their part of its multiprocessors. A GPU that is lost is left
// out.
func TestDivided(t *testing.T) {
	s := dgx.New()
	uuids := s.Divide(1, 3, 4)
	s.Lose(5)
	i, err := Read(s)
	if err != nil || !strings.Contains(i.Reason, "GPU 5") {
		t.Fatalf("%q, %v", i.Reason, err)
	}
	if len(i.Devices) != 9 || !i.Devices[1].Divided || i.Devices[2].UUID != uuids[0] || i.Devices[3].UUID != uuids[1] || i.Devices[7].Index != 6 {
		t.Fatalf("%+v", i.Devices)
	}
	if d := i.Devices[2]; d.Percent != 38 || d.SMs != 42 || d.Memory != 15<<30 || d.Parent != i.Devices[1].UUID || d.Unshareable == "" || d.Divided {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		names []string
		want  int
	}{{nil, 9}, {[]string{"1"}, 3}, {[]string{i.Devices[1].UUID}, 3}, {[]string{uuids[1], "0"}, 2}} {
		if some, err := Select(i, c.names); err != nil || len(some.Devices) != c.want {
			t.Errorf("%v: %+v, %v", c.names, some.Devices, err)
		}
	}
	if _, err := Select(i, []string{"5"}); err == nil || !strings.Contains(err.Error(), `no GPU "5"`) {
		t.Errorf("a lost one: %v", err)
	}
	for n := range s.Devices {
		s.Lose(n)
	}
	if _, err := Read(s); err == nil || errors.Is(err, gpu.ErrNone) {
		t.Errorf("all are lost: %v", err)
	}
}
