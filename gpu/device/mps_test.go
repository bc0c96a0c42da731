package device

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/e2e/dgx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(t *testing.T) MPSOptions {
	t.Helper()
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return MPSOptions{Program: program, Directory: t.TempDir(), Devices: []string{"GPU-a", "GPU-b"}}
}

// A daemon starts with its GPUs, answers, and is gone after Stop. A second one in the same
// directory is refused.
func TestDaemon(t *testing.T) {
	t.Setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")
	o := options(t)
	d, err := StartMPS(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Stop()
	if err := d.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := d.Servers(t.Context()); n != 0 || err != nil {
		t.Errorf("%d servers, %v", n, err)
	}
	for range 2 { // One server is enough.
		if err := d.Serve(t.Context(), 65532); err != nil {
			t.Error(err)
		}
	}
	if users, err := os.ReadFile(filepath.Join(o.Pipes(), "servers")); err != nil || string(users) != "65532\n" {
		t.Errorf("servers for the users %q, %v", users, err)
	}
	env, err := os.ReadFile(filepath.Join(o.Pipes(), "environment"))
	if err != nil || !strings.Contains(string(env), "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b\n") || strings.Contains(string(env), "PERCENTAGE") {
		t.Errorf("%s, %v", env, err)
	}
	if _, err := StartMPS(t.Context(), o); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second one: %v", err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if err := d.Stop(); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := d.Healthy(t.Context()); err == nil {
		t.Error("it is healthy after its end")
	}
	again, err := StartMPS(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(); err != nil {
		t.Error(err)
	}
}

// Healthy reports a daemon that has died.
func TestDeath(t *testing.T) {
	d, err := StartMPS(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.Exited():
	case <-time.After(time.Minute):
		t.Fatal("nobody saw its end")
	}
	if err := d.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// A failed start says why and leaves nothing behind.
func TestCannotStart(t *testing.T) {
	o := options(t)
	t.Setenv("BROKEN", "yes")
	if _, err := StartMPS(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("%v", err)
	}
	missing := o
	missing.Program = filepath.Join(t.TempDir(), "missing")
	if _, err := StartMPS(t.Context(), missing); err == nil || !strings.Contains(err.Error(), "driver") {
		t.Errorf("%v", err)
	}
	o.Devices = nil
	if _, err := StartMPS(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no GPU") {
		t.Errorf("%v", err)
	}
}

// A daemon that ignores the end is killed.
func TestDeaf(t *testing.T) {
	t.Setenv("DEAF", "yes")
	d, err := StartMPS(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if d.Healthy(context.Background()) == nil {
		t.Error("it lives")
	}
}
