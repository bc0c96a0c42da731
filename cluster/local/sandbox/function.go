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
	// HomeDir is a function's working directory, which holds its bundle.
	HomeDir = "/home/app"
	// ProgramFile is the path of this program in a function's private file
	// system.
	ProgramFile = "/home/faas-infer"
	// EnvProgram names the variable that holds this program's path.
	EnvProgram = "FAAS_INFER"
)

// Function describes the isolation of an ordinary function's instance. Its main process,
// the watchdog, is trusted and keeps the provider's user. The processes that the watchdog
// starts with [Cell.Start] are not trusted. If the kernel can, it filters their system calls
// (package spawn), whatever the other isolation is.
type Function struct {
	// Isolated gives it a private file system: the machine's, read-only, with a
	// private /tmp, /var/tmp and /dev/shm, the bundle at HomeDir and secrets at
	// SecretsDir. It hides /root, everything else below /home and the directories
	// in Hide. The instance sees only its own processes, and the kernel kills them
	// when the main process dies.
	Isolated bool
	// Secrets maps names to the files that hold the values.
	Secrets map[string]string
	// Bundle is the directory with the program. Files that the instance writes there
	// stay in the instance. With ReadOnly, it cannot write there.
	Bundle   string
	ReadOnly bool
	// Hide are directories that appear empty, Mask files, such as devices, that cannot be opened.
	Hide, Mask []string
	// Scratch is how many bytes the instance may write to its private
	// directories.
	Scratch int64
	// PrivateNetwork gives it a network of its own with only a loopback
	// interface.
	PrivateNetwork bool
	// User is the user and group of the function's processes, 0 for the
	// provider's.
	User int
	// Entrance opens the control group of the function's processes, if there is
	// one.
	Entrance cgroup.Entrance
}

// functionPlan is the content of EnvSandbox for a function.
type functionPlan struct {
	plan
	Isolated bool     `json:"isolated"`
	Bundle   string   `json:"bundle"`
	ReadOnly bool     `json:"readOnly"`
	Hide     []string `json:"hide"`
	Mask     []string `json:"mask,omitempty"`
	Scratch  int64    `json:"scratch"`
	Network  bool     `json:"network"`
	User     int      `json:"user"`
	Filter   bool     `json:"filter"`
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
		Isolated: f.Isolated, Bundle: f.Bundle, ReadOnly: f.ReadOnly, Hide: f.Hide, Mask: f.Mask, Scratch: f.Scratch,
		Network: f.PrivateNetwork, User: f.User, Filter: FilterAvailable() == nil, Version: f.Entrance.Version,
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

// EnterFunction sets up the isolation that the environment asks for and returns the cell
// that starts the function's processes. If this process was not started with
// [PrepareFunction], the cell works in the bundle's directory without isolation and filter,
// as in a pod, which has its own. Call it
// after the main process has opened all files of the machine that it needs, above all
// its socket.
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
		if notes, err = p.mountAll(); err != nil {
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

// keepDescriptors stops processes that this one starts from inheriting its descriptors.
func keepDescriptors() error {
	const firstAfterStreams = 3
	err := unix.CloseRange(firstAfterStreams, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// The kernel is older than Linux 5.11.
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

// boundProcesses forbids core files, which would hold a function's memory. If the
// function has its own user, it also limits the number of its processes.
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

// maxProcesses is the maximum number of processes and threads of a function.
const maxProcesses = 1024

// raiseLoopback brings up the network namespace's only interface.
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
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	return nil
}
