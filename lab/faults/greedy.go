package faults

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/lab/rig"
)

const (
	// maxHeld is the provider's --max-held in bytes, and maxMiB what its memory may be then.
	maxHeld = 1 << 30
	maxMiB  = maxHeld>>20*3/2 + 200
	// maxLogMiB is what the log of an instance may take: four files of 10 MiB and one that is
	// being copied.
	maxLogMiB = 50
)

// watchMemory returns the largest memory of the provider, in MiB, from now on until stop is
// called.
func (w *world) watchMemory(ctx context.Context) (stop func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	ended, most := make(chan struct{}), 0.0
	go func() {
		defer close(ended)
		for rig.Pause(ctx, 50*time.Millisecond) == nil {
			most = max(most, residentMiB(w.now().Process.Pid))
		}
	}()
	return func() float64 {
		cancel()
		<-ended
		return most
	}
}

// residentMiB is a process's memory, 0 if it has ended.
func residentMiB(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64) // The kernel writes numbers.
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// exceed notes by how much something is beyond its bound, in MiB.
func (t *trial) exceed(what string, mib, bound float64) {
	t.say("%s: %.0f MiB at most, the bound is %.0f", what, mib, bound)
	t.excess += max(0, mib-bound)
}

// program deploys an ordinary function of a fault's own, whose standard error goes into its log.
func (t *trial) program(ctx context.Context, name, process string) error {
	t.own = &function{name: name, deployment: types.FunctionDeployment{Service: name, Image: "functions/alpine:latest", EnvProcess: process, EnvVars: map[string]string{"combine_output": "false"}}}
	if err := t.guest(ctx, t.own); err != nil {
		return err
	}
	return t.world.now().Available(ctx, name, 1)
}

// post sends the fault's own function a request of one byte below a path of the provider.
func (t *trial) post(ctx context.Context, path string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.world.now().URL+path+t.own.name, strings.NewReader("x"))
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// largeAnswers deploys a function that answers with 67 MB and then takes a while to end.
func largeAnswers(ctx context.Context, t *trial) error {
	return t.program(ctx, "large", `sh -c "head -c 67000000 /dev/zero; sleep 5"`)
}

func answers(ctx context.Context, t *trial) error {
	for range 10 {
		if status, err := t.post(ctx, "/async-function/"); err != nil || status != http.StatusAccepted {
			return fmt.Errorf("an asynchronous request was answered %d: %w", status, err)
		}
	}
	return rig.Pause(ctx, t.fault.lasts)
}

func heads(ctx context.Context, t *trial) error {
	text := "GET / HTTP/1.1\r\nHost: bench\r\nX-Long: " + strings.Repeat("x", 60_000)
	return strange(ctx, t, t.world.address, 18_000, 0, func(int) string { return text }, func(ctx context.Context, _ net.Conn) { <-ctx.Done() })
}

// noisy deploys a function that prints a gigabyte for each request.
func noisy(ctx context.Context, t *trial) error {
	return t.program(ctx, "noisy", `sh -c "yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c 1000000000 >&2"`)
}

func logs(ctx context.Context, t *trial) error {
	ctx, cancel := context.WithTimeout(ctx, t.fault.lasts)
	defer cancel()
	dir := filepath.Join(t.world.now().State, "local", "logs", t.own.name+".openfaas-fn")
	before := sizeOf(dir) // The logs of exited instances are kept: those of the runs before.
	var most int64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for rig.Pause(ctx, 10*time.Millisecond) == nil {
			most = max(most, sizeOf(dir)-before)
		}
	}()
	// The answer may take longer than the fault.
	_, _ = t.post(ctx, "/function/")
	<-watched
	t.exceed("logs", float64(most)/(1<<20), maxLogMiB)
	return nil
}

// sizeOf is the size of the files below a directory, in bytes. Files may vanish meanwhile.
func sizeOf(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if info, err := entry.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
