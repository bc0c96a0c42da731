package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// treeV1 is the same path in every version 1 hierarchy that the provider uses.
type treeV1 struct {
	path    string
	missing []string
	// used are the controllers in which new groups are made; all are those in which
	// an earlier provider may have left groups.
	used, all []cgroup1.Subsystem
	// home is the group of the provider's own threads; before is the path of the cpu
	// controller's group in which the process began.
	home   cgroup1.Cgroup
	before string
}

// pathed is a controller that has a directory.
type pathed interface {
	cgroup1.Subsystem
	Path(path string) string
}

func openV1(name string, wanted []string) (*treeV1, error) {
	mounted, err := cgroup1.Default()
	if err != nil {
		return nil, fmt.Errorf("find version 1 controllers: %w", err)
	}
	t := &treeV1{path: filepath.Join("/", name), missing: slices.Clone(wanted)}
	for _, subsystem := range mounted {
		controller := string(subsystem.Name())
		if !slices.Contains([]string{"cpu", "cpuacct", "memory", "cpuset"}, controller) {
			continue
		}
		if controller == "memory" {
			root := filepath.Dir(subsystem.(pathed).Path(""))
			subsystem = cgroup1.NewMemory(root, cgroup1.OptionalSwap())
		}
		t.all = append(t.all, subsystem)
		if controller == "cpuacct" || slices.Contains(wanted, controller) {
			t.used = append(t.used, subsystem)
		}
		t.missing = slices.DeleteFunc(t.missing, func(w string) bool { return w == controller })
	}
	if len(t.missing) == len(wanted) {
		return nil, errors.New("neither version has a cpu or memory controller here")
	}
	if err := t.findHome(); err != nil {
		return nil, err
	}
	t.before = "/"
	if own, err := cgroup1.ParseCgroupFile("/proc/self/cgroup"); err == nil && own["cpu"] != "" && own["cpu"] != ownName(t.path) {
		t.before = own["cpu"]
	}
	if err := t.probe(); err != nil {
		return nil, err
	}
	return t, nil
}

// findHome finds the groups of the provider's own threads.
func (t *treeV1) findHome() (err error) {
	if t.home, err = cgroup1.Load(cgroup1.NestedPath(""), t.in(t.used)); err != nil {
		return fmt.Errorf("find own cgroup: %w", err)
	}
	return nil
}

// probe makes and removes a group. Nothing else shows for certain that this works.
func (t *treeV1) probe() error {
	const name = "probe"
	_, err := t.Create(name, Limits{CPU: 1000})
	return errors.Join(err, t.Load(name).Delete())
}

// in restricts the library to these controllers.
func (t *treeV1) in(subsystems []cgroup1.Subsystem) cgroup1.InitOpts {
	return func(config *cgroup1.InitConfig) error {
		config.InitCheck = cgroup1.AllowAny
		return cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return subsystems, nil })(config)
	}
}

func (t *treeV1) String() string    { return "cgroup v1 " + t.path }
func (t *treeV1) Missing() []string { return t.missing }

func (t *treeV1) Create(name string, limits Limits) (Group, error) {
	g := t.group(name)
	g.limits = limits
	// Spawn sets the CPU quota later.
	early := limits
	early.CPU = 0
	if _, err := cgroup1.New(cgroup1.StaticPath(g.path), t.resources(early), t.in(t.used)); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup %s: %w", g.path, err), g.Delete())
	}
	if err := t.favour(); err != nil {
		return nil, errors.Join(err, g.Delete())
	}
	return g, nil
}

func (t *treeV1) Load(name string) Group { return t.group(name) }

func (t *treeV1) group(name string) *groupV1 {
	return &groupV1{tree: t, path: filepath.Join(t.path, name), used: t.used}
}

func (t *treeV1) Names() ([]string, error) {
	var names []string
	for _, subsystem := range t.all {
		found, err := childGroups(subsystem.(pathed).Path(t.path))
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (t *treeV1) Remove() error {
	var errs []error
	for _, subsystem := range t.all {
		errs = append(errs, removeDir(subsystem.(pathed).Path(t.path)))
	}
	return errors.Join(errs...)
}

// resources translates limits. In version 1, the swap limit bounds memory plus swap.
func (t *treeV1) resources(limits Limits) *specs.LinuxResources {
	resources := &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: formatCores(limits.Cores)}}
	if limits.CPU > 0 {
		quota, period := Quota(limits.CPU)
		shares := sharesOf(limits.CPU)
		resources.CPU.Quota, resources.CPU.Period, resources.CPU.Shares = &quota, &period, &shares
	}
	if limits.Memory > 0 {
		resources.Memory = &specs.LinuxMemory{Limit: &limits.Memory}
		if t.countsSwap() {
			resources.Memory.Swap = &limits.Memory
		}
	}
	return resources
}

func (t *treeV1) countsSwap() bool {
	for _, subsystem := range t.used {
		if subsystem.Name() == cgroup1.Memory {
			_, err := os.Stat(filepath.Join(subsystem.(pathed).Path("/"), "memory.memsw.limit_in_bytes"))
			return err == nil
		}
	}
	return false
}

// groupV1 is one group in all hierarchies of its tree.
type groupV1 struct {
	tree *treeV1
	path string
	// used are the controllers in which it is made.
	used []cgroup1.Subsystem
	// limits are those that it was made with. Spawn sets their CPU quota.
	limits Limits
}

func (g *groupV1) load(subsystems []cgroup1.Subsystem) (cgroup1.Cgroup, error) {
	return cgroup1.Load(cgroup1.StaticPath(g.path), g.tree.in(subsystems))
}

// Spawn moves one of the provider's threads into the group, forks on it and moves it
// back, because a fork begins in its parent thread's groups. Moving a single thread
// costs some 30 µs per controller. Moving a whole process waits until every CPU has
// passed through the scheduler, often 12 ms. Spawn sets the quota afterwards; a small
// quota would throttle the provider's thread in the middle of the fork.
func (g *groupV1) Spawn(_ *syscall.SysProcAttr, start func() (int, error)) error {
	control, err := g.load(g.used)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	var failed error
	process.Apart(func() (clean bool) {
		self := cgroup1.Process{Pid: unix.Gettid()}
		if failed = control.AddTask(self); failed != nil {
			failed = fmt.Errorf("enter cgroup %s: %w", g.path, failed)
		} else {
			_, failed = start()
		}
		return g.tree.home.AddTask(self) == nil
	})
	if failed != nil {
		return failed
	}
	return g.Update(Limits{CPU: g.limits.CPU})
}

func (g *groupV1) Update(limits Limits) error {
	control, err := g.load(g.used)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	if err := control.Update(g.tree.resources(limits)); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", g.path, err)
	}
	return nil
}

func (g *groupV1) Usage() (Usage, error) {
	control, err := g.load(g.used)
	if err != nil {
		return Usage{}, fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	stat, err := control.Stat(cgroup1.IgnoreNotExist)
	if err != nil {
		return Usage{}, fmt.Errorf("read cgroup %s: %w", g.path, err)
	}
	usage := Usage{CPU: time.Duration(stat.GetCPU().GetUsage().GetTotal())}
	if memory := stat.GetMemory(); memory != nil {
		usage.Memory = int64(memory.GetUsage().GetUsage()) - int64(memory.GetTotalInactiveFile())
		usage.OutOfMemory = stat.GetMemoryOomControl().GetOomKill()
	}
	return usage, nil
}

func (g *groupV1) Processes() ([]int, error) {
	var pids []int
	for _, subsystem := range g.tree.all {
		dir := subsystem.(pathed).Path(g.path)
		for _, file := range []string{filepath.Join(dir, "cgroup.procs"), filepath.Join(dir, innerName, "cgroup.procs")} {
			raw, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("members of cgroup %s: %w", g.path, err)
			}
			found, err := parsePids(raw)
			if err != nil {
				return nil, fmt.Errorf("members of cgroup %s: %w", g.path, err)
			}
			pids = append(pids, found...)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func (g *groupV1) Kill() error {
	return process.KillAll(g.Processes, killTimeout)
}

func (g *groupV1) Delete() error {
	for _, subsystem := range g.tree.all {
		if err := removeDir(filepath.Join(subsystem.(pathed).Path(g.path), innerName)); err != nil {
			return err
		}
	}
	control, err := g.load(g.tree.all)
	if errors.Is(err, cgroup1.ErrCgroupDeleted) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	if err := control.Delete(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", g.path, err)
	}
	return nil
}

// parsePids reads a cgroup.procs file. A 0 stands for a process outside this
// PID namespace.
func parsePids(raw []byte) ([]int, error) {
	var pids []int
	for _, field := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("pid %q: %w", field, err)
		}
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
