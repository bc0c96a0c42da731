package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Run starts c as [Start] does and waits for its end, like [exec.Cmd.Run].
func Run(c *exec.Cmd, atDeath syscall.Signal) error {
	p, err := Start(c, atDeath)
	if err != nil {
		return err
	}
	return p.Wait()
}

// motherEnv makes this test's program a process that starts a dependent one.
const motherEnv = "FAAS_INFER_TEST_MOTHER"

func TestMain(m *testing.M) {
	if os.Getenv(motherEnv) != "" {
		mother()
	}
	goleak.VerifyTestMain(m)
}

// mother starts a process that holds the other end of standard output open, and then ends
// threads.
func mother() {
	c := exec.Command("sleep", "600")
	c.Stdout = os.Stdout
	if _, err := Start(c, syscall.SIGKILL); err != nil {
		panic(err)
	}
	for range 20 {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // Never unlocked: the thread ends.
			close(done)
		}()
		<-done
	}
	os.Stderr.WriteString("ready\n")
	select {}
}

func TestDiesWithItsParentAndNotBefore(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), motherEnv+"=1")
	c.Stdout = w
	complaint, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if text, err := io.ReadAll(io.LimitReader(complaint, 6)); err != nil || string(text) != "ready\n" {
		t.Fatalf("the parent says %q, %v", text, err)
	}
	// The pipe stays open for as long as parent or child lives.
	if err := r.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while the parent lives: %v", err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the parent was killed: %v", err)
	}
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	c := exec.Command("sh", "-c", "echo hello; exit 3")
	c.Stdout = &out
	var exit *exec.ExitError
	if err := Run(c, syscall.SIGKILL); !errors.As(err, &exit) || exit.ExitCode() != 3 || out.String() != "hello\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := Run(exec.Command("/no/such/program"), syscall.SIGKILL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

func TestIdleChild(t *testing.T) {
	c := exec.Command("sh", "-c", "cut -d' ' -f41 /proc/self/stat") // The policy, proc(5).
	var out bytes.Buffer
	c.Stdout = &out
	p, err := StartIdle(c, syscall.SIGKILL)
	if err == nil {
		err = p.Wait()
	}
	if err != nil || strings.TrimSpace(out.String()) != fmt.Sprint(unix.SCHED_IDLE) {
		t.Errorf("policy %q, %v", out.String(), err)
	}
}

// A child runs on the cores of the calling thread. The bench uses this to pin an instance.
func TestRunsOnTheCallersCores(t *testing.T) {
	runtime.LockOSThread() // Never unlocked: the thread ends with the test.
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for core := 0; one.Count() == 0; core++ {
		if all.IsSet(core) {
			one.Set(core)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := exec.Command("nproc")
	c.Stdout = &out
	if err := Run(c, syscall.SIGKILL); err != nil || strings.TrimSpace(out.String()) != "1" {
		t.Errorf("the child may use %q cores, %v", out.String(), err)
	}
}
