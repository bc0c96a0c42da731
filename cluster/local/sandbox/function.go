package sandbox

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
)

const (
	// HomeDir is where a function finds its bundle, its working directory.
	HomeDir = "/home/app"
	// ProgramFile is where a function finds this program, where it has a file
	// system of its own.
	ProgramFile = "/home/faas-infer"
	// EnvProgram tells a function where to find this program.
	EnvProgram = "FAAS_INFER"
)

// Function is the surroundings of an ordinary function's instance. Its main
// process, the watchdog, is ours and keeps the provider's user; what that
// starts by [Cell.Start] is not.
type Function struct {
	// Isolated gives it a file system of its own: the machine's, read-only,
	// with a private /tmp, /var/tmp and /dev/shm, the bundle at HomeDir, secrets
	// at SecretsDir, and without /root, all else below /home and what Hide
	// names. It sees no processes but its own, and when the main process dies
	// the kernel kills the others.
	Isolated bool
	// Secrets maps names to the files that hold the values.
	Secrets map[string]string
	// Bundle is the directory with the program. Files written there stay in
	// the instance; with ReadOnly nothing can be.
	Bundle   string
	ReadOnly bool
	// Hide are directories to be seen empty.
	Hide []string
	// Scratch is how many bytes the instance may write to its private
	// directories.
	Scratch int64
	// PrivateNetwork gives it a network of its own that has nothing but a
	// loopback interface.
	PrivateNetwork bool
	// User is the user and group of the function's processes, 0 for the
	// provider's.
	User int
	// Entrance is the control group of the function's processes, if there is
	// one.
	Entrance cgroup.Entrance
}

// functionPlan is what EnvSandbox carries for a function.
type functionPlan struct {
	plan
	Isolated bool     `json:"isolated"`
	Bundle   string   `json:"bundle"`
	ReadOnly bool     `json:"readOnly"`
	Hide     []string `json:"hide"`
	Scratch  int64    `json:"scratch"`
	Network  bool     `json:"network"`
	User     int      `json:"user"`
	// Version and Groups are the entrance's version and descriptors.
	Version int   `json:"version"`
	Groups  []int `json:"groups"`
}

// PrepareFunction changes attr for the main process of f and returns the
// environment entry with which it must be started. The process must inherit the
// directories of f.Entrance as descriptors, in order, from firstFD.
func PrepareFunction(attr *syscall.SysProcAttr, f Function, firstFD int) (entry string, err error) {
	if err := checkNames(f.Secrets); err != nil {
		return "", err
	}
	outside, err := os.Readlink(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("own mount namespace: %w", err)
	}
	p := functionPlan{
		plan:     plan{Outside: outside, Secrets: f.Secrets},
		Isolated: f.Isolated, Bundle: f.Bundle, ReadOnly: f.ReadOnly, Hide: f.Hide, Scratch: f.Scratch,
		Network: f.PrivateNetwork, User: f.User, Version: f.Entrance.Version,
	}
	for i := range f.Entrance.Dirs {
		p.Groups = append(p.Groups, firstFD+i)
	}
	encoded, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode sandbox: %w", err)
	}
	if f.Isolated {
		attr.Unshareflags |= unix.CLONE_NEWNS | unix.CLONE_NEWIPC
		attr.Cloneflags |= unix.CLONE_NEWPID
	}
	if f.PrivateNetwork {
		attr.Unshareflags |= unix.CLONE_NEWNET
	}
	return EnvSandbox + "=" + string(encoded), nil
}

// EnterFunction sets up what the environment asks for and returns the cell in
// which the function's processes are to be started. If the process was not
// started with [PrepareFunction], that is the bundle's directory with no more
// isolation than a session of its own. To be called when the main process has
// opened what it needs of the machine's files, its socket above all.
func EnterFunction(bundle string) (*Cell, error) {
	var p functionPlan
	if encoded, ok := os.LookupEnv(EnvSandbox); ok {
		if err := json.Unmarshal([]byte(encoded), &p); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvSandbox, err)
		}
	}
	if err := keepDescriptors(); err != nil {
		return nil, err
	}
	if p.Network {
		if err := raiseLoopback(); err != nil {
			return nil, err
		}
	}
	home := bundle
	var notes []string
	if p.Isolated {
		if err := checkInside(p.Outside); err != nil {
			return nil, err
		}
		var err error
		if notes, err = p.furnish(); err != nil {
			return nil, err
		}
		home = HomeDir
	}
	if err := os.Chdir(home); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	if err := boundProcesses(p.User); err != nil {
		return nil, err
	}
	if err := os.Unsetenv(EnvSandbox); err != nil {
		return nil, err
	}
	return newCell(p, home, notes)
}

// keepDescriptors keeps what this process has open from those that it starts.
func keepDescriptors() error {
	const firstAfterStreams = 3
	err := unix.CloseRange(firstAfterStreams, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Before Linux 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= firstAfterStreams {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// boundProcesses keeps a function's processes, its user's only, from filling
// the machine, and from leaving their memory in files.
func boundProcesses(user int) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if user == 0 {
		return nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: maxProcesses, Max: maxProcesses}); err != nil {
		return fmt.Errorf("limit the number of processes: %w", err)
	}
	return nil
}

// maxProcesses is how many processes and threads a function may have.
const maxProcesses = 1024

// raiseLoopback switches the network namespace's only interface on.
func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("switch the loopback interface on: %w", err)
	}
	return nil
}
