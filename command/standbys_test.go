package command

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
)

// A process stands by for a shared GPU only, and none does where a program has the GPU to itself. An empty
// one stands by once there is a body.
func TestStandBeside(t *testing.T) {
	f := &ProviderFlags{state: t.TempDir(), standBy: true}
	beside, err := f.standbys(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	k := beside.gpus
	model := cluster.InstanceSpec{Kind: cluster.Model, Devices: []string{"GPU-1"}, Config: cluster.Config{Resources: cluster.Resources{GPU: 40}}}
	program := cluster.InstanceSpec{Kind: cluster.Process, Devices: []string{"GPU-1"}}
	mps := []string{"CUDA_VISIBLE_DEVICES=GPU-1", "CUDA_MPS_PIPE_DIRECTORY=/p"}
	beside.starts(model, mps[:1])
	if k.Keeps("GPU-1") {
		t.Error("one stands by for a whole GPU")
	}
	beside.starts(model, mps)
	if !k.Keeps("GPU-1") {
		t.Error("none stands by")
	}
	beside.starts(program, mps[:1])
	if k.Keeps("GPU-1") {
		t.Error("one stands by beside a program")
	}
	if beside.memory() != 0 {
		t.Error("an empty instance is kept without a body")
	}
	beside.starts(cluster.InstanceSpec{Kind: cluster.Model, Paired: true}, nil)
	if !beside.shadow.Keeps(forShadows) || beside.memory() != emptyMemory {
		t.Error("no empty instance is kept beside a body")
	}
	if localPlatform(Base{}, nil, &beside).Unwanted(); beside.memory() != 0 {
		t.Error("an empty instance is kept although no function has shadows")
	}
}
