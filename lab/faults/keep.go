package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// Three processes do the work, so that nothing is left behind however it ends:
//
//   - the one that the user starts ([Kept]) makes a directory and waits. It removes the
//     directory and the cgroups afterwards;
//   - the keeper ([Keep]) is, for root, the first process of namespaces of its own, with
//     which all processes, mounts and ports go. It takes in orphans;
//   - the bench itself ([Run]) is the keeper's child, and all others are the bench's.
const (
	dirEnv = "FAAS_INFER_FAULTS_DIR"
	// aloneEnv is set where the keeper has namespaces of its own.
	aloneEnv = "FAAS_INFER_FAULTS_ALONE"
	// treesFile, in the directory, names the cgroups that providers have made.
	treesFile = "trees"
	// farewell is how long the bench may take to leave in order.
	farewell = 45 * time.Second
	// manyFiles is the number of descriptors that every process may have: a burst takes
	// two at the gateway for each request.
	manyFiles = 1 << 16
)

// Inside reports whether this process is the bench itself, in the hands of a keeper.
func Inside() bool { return os.Getenv(dirEnv) != "" }

// Kept runs this program once more with the same arguments, by way of a keeper that
// keeper's words start, and cleans up behind it.
func Kept(ctx context.Context, keeper ...string) (err error) {
	dir, err := os.MkdirTemp("", "fif-")
	if err != nil {
		return err
	}
	// By now all processes and mounts are gone.
	defer func() { err = errors.Join(err, removeCgroups(dir), os.RemoveAll(dir)) }()
	// The kernel kills the keeper when the thread ends that forked it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := func(namespaces uintptr, environment ...string) (*exec.Cmd, error) {
		c := exec.CommandContext(ctx, process.Self(), append(append(keeper, "--"), os.Args[1:]...)...)
		c.Env = append(os.Environ(), append(environment, dirEnv+"="+dir, "TMPDIR="+dir)...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: namespaces}
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = farewell
		return c, c.Start()
	}
	c, err := start(unix.CLONE_NEWPID|unix.CLONE_NEWNS|unix.CLONE_NEWNET, aloneEnv+"=1")
	if errors.Is(err, unix.EPERM) {
		fmt.Fprintln(os.Stderr, "No namespaces of its own, which root may have: the ports 8080 and 8082 must be free, and some faults cannot be brought.")
		c, err = start(0)
	}
	if err != nil {
		return fmt.Errorf("start the bench: %w", err)
	}
	return c.Wait()
}

// Keep starts this program with arguments, takes in the orphans of all that it starts, and
// kills what is left when it has ended. It returns the program's exit code.
func Keep(arguments []string) (code int, err error) {
	if os.Getenv(aloneEnv) != "" {
		if err := furnish(); err != nil {
			return 1, err
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("take in orphans: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	runtime.LockOSThread()
	pid, err := syscall.ForkExec(process.Self(), append([]string{os.Args[0]}, arguments...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}})
	if err != nil {
		return 1, fmt.Errorf("start the bench: %w", err)
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for the bench: %w", err)
		case ended == pid:
			if status.Signaled() {
				return 128 + int(status.Signal()), endAll()
			}
			return status.ExitStatus(), endAll()
		}
	}
}

// furnish makes new namespaces fit to live in.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to the bench: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	// Where this may not be raised, the burst says how far it comes.
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: manyFiles, Max: manyFiles})
	return nil
}

// endAll kills all that is left.
func endAll() error {
	if group, err := os.ReadFile(filepath.Join(os.Getenv(dirEnv), frozenFile)); err == nil {
		_ = thaw(string(group)) // It is gone unless the bench died.
	}
	return process.KillAll(func() ([]int, error) {
		for { // Zombies would be listed for ever.
			if ended, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); ended <= 0 || err != nil {
				break
			}
		}
		all, err := processes()
		if err != nil {
			return nil, err
		}
		return descendants(all, os.Getpid()), nil
	}, 10*time.Second)
}

// removeCgroups removes the cgroups that a bench has written down in its directory, with
// those within and those beside.
func removeCgroups(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, treesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, tree := range strings.Fields(string(text)) {
		for _, suffix := range []string{"", "-provider", "-background"} {
			errs = append(errs, removeGroup(tree+suffix))
		}
	}
	return errors.Join(errs...)
}

// removeGroup removes a cgroup's directory and those below it.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeGroup(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}
