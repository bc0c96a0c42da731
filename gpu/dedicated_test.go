package gpu

import "testing"

// A GPU that the cluster gives to a container has a kind of its own. The container sees it as its only one.
func TestDedicated(t *testing.T) {
	shared, own := Device{UUID: "a", Model: "NVIDIA T4", Memory: 8 << 30}, Device{UUID: Granted(3), Model: "NVIDIA T4", Driver: "2", Dedicated: true, Whole: true, Grant: WholeResource, Memory: 16 << 30}
	i := Inventory{Sharing: MPS, PipeDirectory: "/run/mps", Driver: "1", Devices: []Device{shared, own}}
	if kind := i.KindOf(&shared); kind != "NVIDIA T4, driver 1" || IsDedicated(kind) {
		t.Error(kind)
	}
	if kind := i.KindOf(&own); kind != "NVIDIA T4, driver 2, whole" || !IsDedicated(kind) {
		t.Error(kind)
	}
	if !IsGranted(own.UUID) || IsGranted("GPU-3") || own.UUID != "nvidia.com/gpu-3" {
		t.Error(own.UUID)
	}
	s, err := i.Place(nil, own.UUID, 100, 16<<30)
	if err != nil || s.Grant != WholeResource || len(s.Mounts()) > 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	env := s.Env()
	if _, names := env[VisibleEnv]; names || env["CUDA_VISIBLE_DEVICES"] != "0" || !Shared(func(name string) string { return env[name] }) {
		t.Errorf("%v", env)
	}
	if s, err := i.Place(nil, "", 50, 1<<30); err != nil || s.Device != "a" {
		t.Errorf("half of it: %+v, %v", s, err)
	}
}
