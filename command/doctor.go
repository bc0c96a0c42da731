package command

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// States of what the doctor looks at: a provider works, works with less, or does not.
const (
	healthy = "ok"
	lacking = "lacks"
	blocked = "blocks"
)

// diagnosis is what the doctor found about one part of the machine, and how to mend it.
type diagnosis struct {
	Part  string `json:"part"`
	State string `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`
}

// The least that a machine should have: bytes of memory and of disk, and descriptors. A core is in millicores.
const (
	leastMemory      = 1 << 30
	leastDisk        = 1 << 30
	leastDescriptors = 4096
	core             = 1000
)

// newDoctorCommand returns "faas-infer doctor".
func newDoctorCommand() *cobra.Command {
	var (
		f   ProviderFlags
		out report.Output
	)
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run a provider, and say how to mend what it lacks",
		Long: `doctor looks at what "faas-infer up" needs, as the same user: the runtime of models, directories,
the port, rights, cgroups, processors, memory. It leaves nothing changed. STATE is ok, "lacks" if a provider works
with less, or "blocks" if it does not. doctor fails if something blocks.`,
		Example: "  faas-infer doctor\n  faas-infer doctor --listen 0.0.0.0:80 --state /var/lib/faas-infer -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			found := examine(f.listen, f.state)
			err := out.Print(c.OutOrStdout(), found, func() *report.Table {
				t := &report.Table{Columns: []report.Column{{Title: "PART"}, {Title: "STATE"}, {Title: "FOUND", Long: true}}}
				for _, d := range found {
					text := d.Found
					if d.Fix != "" {
						text += ". Fix: " + d.Fix
					}
					t.Add(d.Part, d.State, text)
				}
				return t
			})
			var blocking []string
			for _, d := range found {
				if d.State == blocked {
					blocking = append(blocking, d.Part)
				}
			}
			if err == nil && len(blocking) > 0 {
				err = fmt.Errorf("a provider cannot run here because of: %s", strings.Join(blocking, ", "))
			}
			return err
		},
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the provider")
	c.Flags().StringVar(&f.state, "state", "", "the provider's directory (default $XDG_STATE_HOME/faas-infer)")
	out.Register(c.Flags())
	return c
}

// examine looks at all parts of the machine.
func examine(listen, state string) []diagnosis {
	found := []diagnosis{examineRuntime(), examineState(state), examineCache(), examinePort(listen), examineCgroups()}
	found = append(found, examineRights()...)
	return append(found, examineCores(), examineMemory(), examineDescriptors(), examinePython())
}

func examineRuntime() diagnosis {
	d := diagnosis{Part: "ONNX Runtime", State: healthy}
	path, err := onnxruntime.LibraryPath()
	if err == nil {
		err = onnxruntime.Load(path)
	}
	if err != nil {
		d.State, d.Found, d.Fix = blocked, err.Error(), "run faas-infer setup"
		return d
	}
	d.Found = onnxruntime.Version() + " in " + path
	if onnxruntime.Version() != onnxruntime.LibraryVersion {
		d.State, d.Fix = lacking, "this program is tested with "+onnxruntime.LibraryVersion+"; unset "+onnxruntime.LibraryEnv+" and run faas-infer setup"
	}
	return d
}

func examineState(dir string) diagnosis {
	if dir == "" {
		var err error
		if dir, err = stateDir(); err != nil {
			return diagnosis{"state directory", blocked, err.Error(), "set HOME or XDG_STATE_HOME, or give --state"}
		}
	}
	return examineDir("state directory", dir, "give another one with --state")
}

func examineCache() diagnosis {
	dir, err := profile.PreparedDir("")
	if err != nil {
		return diagnosis{"cache", blocked, err.Error(), "set HOME or XDG_CACHE_HOME, or give --prepared"}
	}
	return examineDir("cache", dir, "give another one with --prepared")
}

// examineDir checks that a directory, or the nearest one above it that exists, can be written and has room.
func examineDir(part, dir, other string) diagnosis {
	at := dir
	for {
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) || filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	probe, err := os.MkdirTemp(at, ".doctor-*") // Access rights do not tell about read-only file systems.
	if err != nil && at != dir {
		return diagnosis{part, blocked, fmt.Sprintf("%s is not there and cannot be made in %s: %v", dir, at, errors.Unwrap(err)), "make it for this user, or " + other}
	}
	if err != nil {
		return diagnosis{part, blocked, fmt.Sprintf("%s cannot be written: %v", at, err), "make it writable for this user, or " + other}
	}
	if err := os.Remove(probe); err != nil {
		return diagnosis{part, blocked, err.Error(), "remove it, or " + other}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return diagnosis{part, blocked, fmt.Sprintf("%s: %v", at, err), "mend its file system, or " + other}
	}
	free := int64(fs.Bavail) * fs.Bsize
	d := diagnosis{part, healthy, fmt.Sprintf("%s, %d MiB free", dir, free>>20), ""}
	if free < leastDisk {
		d.State, d.Fix = lacking, "free some space, or "+other
	}
	return d
}

func examinePort(listen string) diagnosis {
	d := diagnosis{Part: "address", State: healthy, Found: listen + " is free"}
	l, err := net.Listen("tcp", listen) // Without the patience of a provider that follows another.
	if err == nil {
		l.Close() // Nobody has connected.
		return d
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		client := http.Client{Timeout: time.Second}
		answer, failed := client.Get("http://" + listen + "/healthz")
		if failed == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				d.Found = "a provider answers at " + listen
				return d
			}
		}
	}
	d.State, d.Found, d.Fix = blocked, err.Error(), addressFix(err, "stop the program that has it (ss -ltnp shows it), or give another address with --listen")
	return d
}

func examineCgroups() diagnosis {
	d := diagnosis{Part: "cgroups", State: lacking,
		Fix: "run as root, or as a systemd service with Delegate=yes; without cgroups only threads are limited, not CPU and memory"}
	tree, err := cgroup.Open("faas-infer-doctor", true)
	if err != nil {
		d.Found = err.Error()
		return d
	}
	missing := tree.Missing()
	if err := tree.Remove(); err != nil {
		d.Found = fmt.Sprintf("%s: %v", tree, err)
		return d
	}
	if len(missing) > 0 {
		d.Found, d.Fix = fmt.Sprintf("%s without %s", tree, strings.Join(missing, ", ")), "let the system's administrator enable these controllers"
		return d
	}
	return diagnosis{"cgroups", healthy, tree.String(), ""}
}

// examineRights checks what keeps ordinary functions apart.
func examineRights() (found []diagnosis) {
	for _, c := range []struct {
		part    string
		check   func() error
		without string
	}{
		{"secrets", sandbox.Available, "functions find secrets in a directory of their own"},
		{"isolation", sandbox.FunctionAvailable, "ordinary functions see the machine's files and processes"},
		{"system calls", sandbox.FilterAvailable, "ordinary functions may make all system calls"},
		{"users", sandbox.UsersAvailable, "ordinary functions run as the provider's user"},
	} {
		d := diagnosis{c.part, healthy, "the provider has the rights", ""}
		if err := c.check(); err != nil {
			d = diagnosis{c.part, lacking, err.Error() + "; " + c.without, "run as root, or deploy only functions that you trust"}
		}
		found = append(found, d)
	}
	return found
}

func examineCores() diagnosis {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return diagnosis{"processors", blocked, err.Error(), "run on Linux"}
	}
	millicores := own.Count() * core
	if quota := cgroup.Own().CPU; quota > 0 {
		millicores = min(millicores, quota)
	}
	d := diagnosis{"processors", healthy, fmt.Sprintf("%s, %dm for this process", report.Machine(), millicores), ""}
	if millicores < 2*core {
		d.State, d.Fix = lacking, "give it two cores or more: instances and the provider share what there is"
	}
	return d
}

func examineMemory() diagnosis {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return diagnosis{"memory", lacking, err.Error(), "run on Linux"}
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if limit := cgroup.Own().Memory; limit > 0 {
		total = min(total, limit)
	}
	d := diagnosis{"memory", healthy, fmt.Sprintf("%d MiB for this process", total>>20), ""}
	if total < leastMemory {
		d.State, d.Fix = lacking, "give it 1 GiB or more: large models do not fit"
	}
	return d
}

func examineDescriptors() diagnosis {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return diagnosis{"descriptors", lacking, err.Error(), "run on Linux"}
	}
	d := diagnosis{"descriptors", healthy, fmt.Sprintf("%d open files", limit.Max), ""}
	if limit.Max < leastDescriptors {
		d.State, d.Fix = lacking, fmt.Sprintf("raise it: ulimit -Hn %d, or LimitNOFILE= of the service", leastDescriptors)
	}
	return d
}

func examinePython() diagnosis {
	path, err := exec.LookPath("python3")
	if err != nil {
		return diagnosis{"Python", lacking, cmp.Or(err.Error(), "none"), "install python3 for functions with Python handlers and for faas-infer model convert; others need none"}
	}
	return diagnosis{"Python", healthy, path, ""}
}
