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
	// stageVariable has the stage of a program that was started again.
	stageVariable = "FAAS_INFER_ISOLATION"
	// cgroupVariable has the name of the cgroups that the program may make.
	cgroupVariable = "FAAS_INFER_ISOLATION_CGROUP"

	stageInit = "init"
	stageWork = "work"

	// refused is the exit code if the namespaces cannot be prepared.
	refused = 97
)

// fresh are directories that a node writes to under fixed names. In the namespaces they are
// empty tmpfs.
var fresh = []string{"/run", "/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods"}

// Isolated reports whether this process runs in its own namespaces.
func Isolated() bool { return os.Getenv(stageVariable) == stageWork }

// Cgroup returns the name of the cgroups that this process may make, below the root of each
// hierarchy. They are removed after the process has ended.
func Cgroup() string { return os.Getenv(cgroupVariable) }

// Run runs work in new namespaces and returns its exit code. It starts the program again
// with the same arguments, so the code before Run runs again too. If the kernel refuses the
// namespaces, Run runs work without them, with Isolated false, and prints a line on standard
// error.
func Run(work func() int) int {
	switch os.Getenv(stageVariable) {
	case stageWork:
		return work()
	case stageInit:
		return initialise()
	}
	code, err := enter()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\n*** NO REAL NODE: this machine does not allow new namespaces (%v). Tests that need a kubelet are SKIPPED. ***\n\n", err)
		return work()
	}
	return code
}

// enter starts the program again as the first process of new namespaces and waits for its
// end.
func enter() (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("it needs root")
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
			// The end of the namespaces' first process ends all others.
			if err := c.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 1, fmt.Errorf("end the namespaces: %w", err)
			}
		case <-done:
			code := c.ProcessState.ExitCode()
			if code == refused {
				return 0, errors.New("see the reason above")
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

// again returns a command that starts this program again as another stage.
func again(stage string, environment ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(append(os.Environ(), stageVariable+"="+stage), environment...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c
}

// initialise is the namespaces' first process. It prepares them, starts the work and reaps
// orphaned processes, which only the first process can do.
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
		return fmt.Errorf("make mounts private: %w", err)
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

// Hub are the hosts of the registry of images without a host. In the namespaces their
// address is [HubAddress], where a test may serve.
var Hub = []string{"index.docker.io", "registry-1.docker.io"}

// HubAddress is a loopback address.
const HubAddress = "127.0.0.80"

// nameHub gives the hub's hosts and the registry their addresses, only in the namespaces.
func nameHub() error {
	const file = "/run/hosts"
	text, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text = fmt.Appendf(text, "\n%s %s\n%s %s\n", HubAddress, strings.Join(Hub, " "), IPv6.Node, IPv6.Registry)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/hosts: %w", err)
	}
	return nil
}
