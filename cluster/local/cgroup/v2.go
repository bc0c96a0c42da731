package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// unifiedMount is where distributions mount cgroups.
const unifiedMount = "/sys/fs/cgroup"

// treeV2 is one group in the unified hierarchy.
type treeV2 struct {
	mount string
	// path begins at mount, with a slash.
	path string
	// controllers are those in use, missing those that are wanted and unavailable.
	controllers, missing []string
	// before is the path of the group in which the process began.
	before string
}

// openV2 first tries the top of the hierarchy, which root may use and which does not
// depend on how the provider is started. Then it tries the place beside the process's own
// group, which a systemd user session with delegation may use.
func openV2(mount, name string, wanted []string) (*treeV2, error) {
	parents := []string{"/"}
	if _, own, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup"); err == nil && filepath.Dir(own) != "/" {
		parents = append(parents, filepath.Dir(own))
	}
	var errs []error
	for _, parent := range parents {
		t, err := newTreeV2(mount, parent, name, wanted)
		if err == nil {
			return t, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func newTreeV2(mount, parent, name string, wanted []string) (*treeV2, error) {
	raw, err := os.ReadFile(filepath.Join(mount, parent, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("controllers of cgroup %s: %w", parent, err)
	}
	// Moving a process into a group needs the right to write this file.
	if err := unix.Access(filepath.Join(mount, parent, "cgroup.procs"), unix.W_OK); err != nil {
		return nil, fmt.Errorf("move processes below cgroup %s: %w", parent, err)
	}
	t := &treeV2{mount: mount, path: filepath.Join(parent, name)}
	available := strings.Fields(string(raw))
	for _, controller := range wanted {
		if slices.Contains(available, controller) {
			t.controllers = append(t.controllers, controller)
		} else {
			t.missing = append(t.missing, controller)
		}
	}
	if len(t.controllers) == 0 {
		return nil, fmt.Errorf("cgroup %s has none of the controllers %s", parent, strings.Join(wanted, ", "))
	}
	if err := t.probe(); err != nil {
		return nil, errors.Join(err, t.Remove())
	}
	t.before = "/"
	if _, own, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup"); err == nil && own != "" && own != ownName(t.path) {
		t.before = own
	}
	return t, nil
}

// probe makes a group with every controller and removes it. Nothing else shows for
// certain that this works.
func (t *treeV2) probe() error {
	probe := t.group("probe")
	manager, err := cgroup2.NewManager(t.mount, probe.path, &cgroup2.Resources{})
	if err != nil {
		return fmt.Errorf("make cgroup %s: %w", probe.path, err)
	}
	if err = manager.ToggleControllers(t.controllers, cgroup2.Enable); err == nil {
		_, err = t.Create("probe", Limits{CPU: 1000})
	}
	return errors.Join(err, probe.Delete())
}

func (t *treeV2) String() string    { return "cgroup v2 " + t.path }
func (t *treeV2) Missing() []string { return t.missing }

func (t *treeV2) Create(name string, limits Limits) (Group, error) {
	g := t.group(name)
	if err := g.create(t.resources(limits)); err != nil {
		return nil, err
	}
	if err := t.favour(); err != nil {
		return nil, errors.Join(err, g.Delete())
	}
	return g, nil
}

// has reports whether the tree uses a controller.
func (t *treeV2) has(controller string) bool { return slices.Contains(t.controllers, controller) }

// create makes the group. After an error, nothing of it exists.
func (g *groupV2) create(resources *cgroup2.Resources) error {
	if _, err := cgroup2.NewManager(g.tree.mount, g.path, resources); err != nil {
		return errors.Join(fmt.Errorf("make cgroup %s: %w", g.path, err), g.Delete())
	}
	return nil
}

func (t *treeV2) Load(name string) Group { return t.group(name) }

func (t *treeV2) group(name string) *groupV2 {
	return &groupV2{tree: t, path: filepath.Join(t.path, name)}
}

func (t *treeV2) Names() ([]string, error) { return childGroups(filepath.Join(t.mount, t.path)) }

func (t *treeV2) Remove() error { return removeDir(filepath.Join(t.mount, t.path)) }

// resources translates limits for the controllers in use.
func (t *treeV2) resources(limits Limits) *cgroup2.Resources {
	var resources cgroup2.Resources
	if t.has("cpu") {
		resources.CPU = &cgroup2.CPU{Max: "max"}
		if limits.CPU > 0 {
			quota, period := Quota(limits.CPU)
			weight := weightOf(limits.CPU)
			resources.CPU.Max, resources.CPU.Weight = cgroup2.NewCPUMax(&quota, &period), &weight
		}
	}
	if t.has("cpuset") && len(limits.Cores) > 0 {
		if resources.CPU == nil {
			resources.CPU = &cgroup2.CPU{}
		}
		resources.CPU.Cpus = formatCores(limits.Cores)
	}
	if t.has("memory") {
		resources.Memory = &cgroup2.Memory{}
		if limits.Memory > 0 {
			// The kernel kills one process, not the whole group. The rest of the
			// instance replaces that process and reports why it ended, or ends with it.
			resources.Memory.Max = &limits.Memory
			if t.countsSwap() {
				resources.Memory.Swap = new(int64)
			}
		}
	}
	return &resources
}

// countsSwap reports whether swap can be limited. Only groups below the top, as the
// tree's own, have the file.
func (t *treeV2) countsSwap() bool {
	_, err := os.Stat(filepath.Join(t.mount, t.path, "memory.swap.max"))
	return err == nil
}

// groupV2 is one group in the unified hierarchy.
type groupV2 struct {
	tree *treeV2
	path string
	// nested: Nest made the group, so Spawn uses its inner group outerName.
	nested bool
}

func (g *groupV2) dir() string { return filepath.Join(g.tree.mount, g.path) }

func (g *groupV2) manager() (*cgroup2.Manager, error) {
	manager, err := cgroup2.Load(g.path, cgroup2.WithMountpoint(g.tree.mount))
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	return manager, nil
}

// Spawn lets the kernel fork directly into the group (clone3 with CLONE_INTO_CGROUP,
// Linux 5.7). On older kernels, or if a filter hides clone3, it moves the process right
// after its start.
func (g *groupV2) Spawn(attr *syscall.SysProcAttr, start func() (int, error)) error {
	if g.nested {
		return (&groupV2{tree: g.tree, path: filepath.Join(g.path, outerName)}).Spawn(attr, start)
	}
	dir, err := os.Open(g.dir())
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", g.path, err)
	}
	defer dir.Close()
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	_, err = start()
	attr.UseCgroupFD, attr.CgroupFD = false, 0
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.E2BIG) {
		return err
	}
	pid, err := start()
	if err != nil {
		return err
	}
	manager, err := g.manager()
	if err != nil {
		return err
	}
	if err := manager.AddProc(uint64(pid)); err != nil {
		return fmt.Errorf("move pid %d into cgroup %s: %w", pid, g.path, err)
	}
	return nil
}

func (g *groupV2) Update(limits Limits) error {
	manager, err := g.manager()
	if err != nil {
		return err
	}
	if err := manager.Update(g.tree.resources(limits)); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", g.path, err)
	}
	return nil
}

func (g *groupV2) Usage() (Usage, error) {
	manager, err := g.manager()
	if err != nil {
		return Usage{}, err
	}
	mask := cgroup2.StatCPU
	if g.tree.has("memory") {
		mask |= cgroup2.StatMemory | cgroup2.StatMemoryEvents
	}
	metrics, err := manager.StatFiltered(mask)
	if err != nil {
		return Usage{}, fmt.Errorf("read cgroup %s: %w", g.path, err)
	}
	return usageOf(metrics), nil
}

func usageOf(metrics *stats.Metrics) Usage {
	return Usage{
		CPU:         time.Duration(metrics.GetCPU().GetUsageUsec()) * time.Microsecond,
		Memory:      int64(metrics.GetMemory().GetUsage()) - int64(metrics.GetMemory().GetInactiveFile()),
		OutOfMemory: metrics.GetMemoryEvents().GetOomKill(),
	}
}

func (g *groupV2) Processes() ([]int, error) {
	var pids []int
	err := filepath.WalkDir(g.dir(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			var raw []byte
			if raw, err = os.ReadFile(filepath.Join(path, "cgroup.procs")); err == nil {
				var found []int
				found, err = parsePids(raw)
				pids = append(pids, found...)
			}
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("members of cgroup %s: %w", g.path, err)
	}
	return pids, nil
}

// Kill uses the kernel's cgroup.kill (Linux 5.14), which no fork escapes. It then kills
// whatever is left one by one, for older kernels.
func (g *groupV2) Kill() error {
	if file, err := os.OpenFile(filepath.Join(g.dir(), "cgroup.kill"), os.O_WRONLY, 0); err == nil {
		_, _ = file.WriteString("1")
		_ = file.Close()
	}
	return process.KillAll(g.Processes, killTimeout)
}

func (g *groupV2) Delete() error {
	if _, err := os.Lstat(g.dir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range []string{innerName, outerName} {
		if err := removeDir(filepath.Join(g.dir(), name)); err != nil {
			return err
		}
	}
	manager, err := g.manager()
	if err != nil {
		return err
	}
	if err := manager.Delete(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", g.path, err)
	}
	return nil
}
