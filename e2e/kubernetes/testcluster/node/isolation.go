package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// stageVariable tells a program that was started again what it is now.
	stageVariable = "FAAS_INFER_ISOLATION"
	// cgroupVariable has the name of the cgroups that it may make.
	cgroupVariable = "FAAS_INFER_ISOLATION_CGROUP"

	stageInit = "init"
	stageWork = "work"

	// refused is the exit code of namespaces that cannot be made fit to work in.
	refused = 97
)

// fresh are directories of the machine that a node writes to under fixed names; in
// the namespace they are empty and gone at its end.
var fresh = []string{"/run", "/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods"}

// Isolated reports whether this process runs in namespaces of its own.
func Isolated() bool { return os.Getenv(stageVariable) == stageWork }

// Cgroup is the name below each hierarchy's root of the cgroups that this process
// may make; they are removed when it has ended.
func Cgroup() string { return os.Getenv(cgroupVariable) }

// Run runs work in namespaces of its own, and returns its exit code. For that the
// program is started again with the same arguments, so what comes before Run is done
// again, too. Where the kernel refuses, work runs all the same, with Isolated false,
// and a line on standard error says so.
func Run(work func() int) int {
	switch os.Getenv(stageVariable) {
	case stageWork:
		return work()
	case stageInit:
		return initialise()
	}
	code, err := enter()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\n*** NO REAL NODE: this machine gives no namespaces of our own (%v). Tests that need a kubelet are SKIPPED. ***\n\n", err)
		return work()
	}
	return code
}

// enter starts the program again as the first process of new namespaces and waits
// for it.
func enter() (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("it takes root")
	}
	cgroup := fmt.Sprintf("faas-infer-test-%d", os.Getpid())
	c := again(stageInit, cgroupVariable+"="+cgroup)
	c.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	if err := c.Start(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, unix.SIGTERM, unix.SIGQUIT)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		select {
		case <-signals:
			// The namespaces' first process takes all others with it.
			if err := c.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 1, fmt.Errorf("end the namespaces: %w", err)
			}
		case <-done:
			code := c.ProcessState.ExitCode()
			if code == refused {
				return 0, errors.New("the reason is above")
			}
			if err := RemoveCgroups(cgroup); err != nil {
				fmt.Fprintln(os.Stderr, "isolation:", err)
				code = max(code, 1)
			}
			if code < 0 {
				code = 1 // A signal ended it.
			}
			return code, nil
		}
	}
}

// again is this program as another stage.
func again(stage string, environment ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(append(os.Environ(), stageVariable+"="+stage), environment...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c
}

// initialise is the namespaces' first process: it makes them fit to work in, starts
// the work and, as nobody else can, buries processes that lost their parent.
func initialise() int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "isolation:", err)
		return refused
	}
	c := again(stageWork)
	if err := c.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "isolation:", err)
		return 1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, "isolation: wait:", err)
			return 1
		case pid == c.Process.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case pid == c.Process.Pid:
			return status.ExitStatus()
		}
	}
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range fresh {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount an empty %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll("/run/lock", 0o1777); err != nil {
		return err
	}
	if err := nameHub(); err != nil {
		return err
	}
	return network()
}

// Hub are the hosts of the registry that images without a host are in. In the
// namespaces their address is [HubAddress], where a test may serve.
var Hub = []string{"index.docker.io", "registry-1.docker.io"}

// HubAddress is one that means this machine.
const HubAddress = "127.0.0.80"

// nameHub gives the hub's hosts their address, in the namespaces alone.
func nameHub() error {
	const file = "/run/hosts"
	text, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text = fmt.Appendf(text, "\n%s %s\n", HubAddress, strings.Join(Hub, " "))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("name the registry of images without a host: %w", err)
	}
	return nil
}
