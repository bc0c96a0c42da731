package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// Entrance lets a process start others in a group that it cannot reach by name.
type Entrance struct {
	// Version is 1 or 2.
	Version int
	// Dirs are the group's directories: one in version 2, one for each
	// controller in version 1.
	Dirs []*os.File
}

// Close closes the directories.
func (e Entrance) Close() {
	for _, dir := range e.Dirs {
		_ = dir.Close()
	}
}

// openEntrance opens the directories of an entrance.
func openEntrance(version int, dirs []string) (Entrance, error) {
	entrance := Entrance{Version: version}
	for _, dir := range dirs {
		file, err := os.Open(dir)
		if err != nil {
			entrance.Close()
			return Entrance{}, fmt.Errorf("open cgroup: %w", err)
		}
		entrance.Dirs = append(entrance.Dirs, file)
	}
	return entrance, nil
}

// Names of the groups inside one that Nest made. In version 2, a group with limited
// groups inside it cannot have members itself, so the main process needs outerName.
const (
	innerName = "function"
	outerName = "main"
)

// Nest makes no inner group in the cpuset hierarchy, where the inner group's cores would
// have to follow every change. A thread can be in different groups of different
// hierarchies.
func (t *treeV1) Nest(name string, whole, inner Limits) (Group, error) {
	whole.CPU = 0
	g, err := t.Create(name, whole)
	if err != nil {
		return nil, err
	}
	within := t.group(name).inner()
	if _, err := cgroup1.New(cgroup1.StaticPath(within.path), t.resources(inner), t.in(within.used)); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup %s: %w", within.path, err), g.Delete())
	}
	return g, nil
}

func (g *groupV1) Inner() Group { return g.inner() }

func (g *groupV1) inner() *groupV1 {
	inner := &groupV1{tree: g.tree, path: filepath.Join(g.path, innerName)}
	for _, subsystem := range g.used {
		if name := subsystem.Name(); name == cgroup1.Cpu || name == cgroup1.Memory {
			inner.used = append(inner.used, subsystem)
		}
	}
	return inner
}

func (g *groupV1) Entrance() (Entrance, error) {
	var dirs []string
	for _, subsystem := range g.used {
		dirs = append(dirs, subsystem.(pathed).Path(g.path))
	}
	return openEntrance(1, dirs)
}

// Nest makes two inner groups: one for the process that Spawn starts, one for what that
// process starts.
func (t *treeV2) Nest(name string, whole, inner Limits) (Group, error) {
	whole.CPU = 0
	g := t.group(name)
	g.nested = true
	if err := g.create(t.resources(whole)); err != nil {
		return nil, err
	}
	main := t.group(filepath.Join(name, outerName))
	within := g.inner()
	if err := errors.Join(main.create(&cgroup2.Resources{}), within.create(t.resources(inner))); err != nil {
		return nil, errors.Join(err, g.Delete())
	}
	return g, nil
}

func (g *groupV2) Inner() Group { return g.inner() }

func (g *groupV2) inner() *groupV2 {
	return &groupV2{tree: g.tree, path: filepath.Join(g.path, innerName)}
}

func (g *groupV2) Entrance() (Entrance, error) { return openEntrance(2, []string{g.dir()}) }
