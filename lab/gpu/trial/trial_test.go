package trial

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/instance"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "instance" {
		if err := play(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// play is an instance on an ideal A100: it may use its share of the multiprocessors.
func play() error {
	if err := sandbox.Enter(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	percent, err := strconv.Atoi(os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
	if err != nil || os.Getenv("CUDA_VISIBLE_DEVICES") == "" {
		return fmt.Errorf("no share: %q", os.Environ())
	}
	return Serve(ctx, os.Stdout, instance.AnnounceReady, 108*percent/100, func() error { return nil })
}

func options(t *testing.T) Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Options{Instance: []string{self, "instance"}, Library: dgx.New(), Device: "3", MPS: program, Log: t.Output()}
}

// On a machine that works, every check holds.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, x := range r.Results {
		all[x.Name] = x.Value
	}
	if all["share-30.sms"] != 32 || all["whole.sms"] != 108 || all["failed_checks"] != 0 || all["restarted_ms"] <= 0 {
		t.Errorf("%v", all)
	}
}

// Without a daemon, the report says so and has the rest.
func TestRunWithoutMPS(t *testing.T) {
	o := options(t)
	var log bytes.Buffer
	o.MPS, o.Log = filepath.Join(t.TempDir(), "missing"), &log
	r, err := Run(t.Context(), o)
	if r == nil || err == nil || !strings.Contains(err.Error(), "a daemon serves the GPU") || !strings.Contains(log.String(), "ok: an instance has the whole GPU") {
		t.Errorf("%v: %s", err, log.String())
	}
	o.Library.(*dgx.Machine).InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := Run(t.Context(), o); err == nil {
		t.Error("it runs without a driver")
	}
}
