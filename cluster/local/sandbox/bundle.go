package sandbox

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountBundle mounts the bundle at HomeDir. The files of the bundle's owner appear as the
// function's, and the function's writes go to the private file system. If the kernel
// supports only one of these or neither, the notes say so.
func (p functionPlan) mountBundle(private scratch, bundle *os.File) (notes []string, err error) {
	source := pathOf(bundle)
	lower := private.at("lower")
	if p.User != 0 {
		if err := mountAs(bundle, lower, p.User); err != nil {
			notes = append(notes, fmt.Sprintf("The function cannot read files of the bundle that only their owner may read: %v", err))
		} else {
			source = lower
		}
	}
	if !p.ReadOnly {
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", source,
			private.at("upper"), private.at("work"))
		err := unix.Mount("overlay", HomeDir, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
		if err == nil {
			return notes, nil
		}
		notes = append(notes, fmt.Sprintf("%s is read-only: no overlay of the bundle: %v", HomeDir, err))
	}
	return notes, bind(source, HomeDir, unix.MS_RDONLY)
}

// mountAs mounts a directory at target with its owner mapped to user. It needs Linux 5.12
// and a file system that supports this.
func mountAs(dir *os.File, target string, user int) error {
	var info unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &info); err != nil {
		return err
	}
	namespace, err := userNamespace(
		syscall.SysProcIDMap{ContainerID: int(info.Uid), HostID: user, Size: 1},
		syscall.SysProcIDMap{ContainerID: int(info.Gid), HostID: user, Size: 1})
	if err != nil {
		return fmt.Errorf("user namespace: %w", err)
	}
	defer namespace.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, pathOf(dir), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the mount: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(namespace.Fd()),
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("change owners: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

// userNamespace makes a user namespace with one user and one group. The namespace lives
// as long as the file is open or something uses it.
func userNamespace(user, group syscall.SysProcIDMap) (namespace *os.File, err error) {
	// Only a new process can get a user namespace.
	err = withDormant(syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{user}, GidMappings: []syscall.SysProcIDMap{group},
	}, func(pid int) error {
		namespace, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		return err
	})
	return namespace, err
}

// withDormant calls f with the pid of a child that never runs, because ptrace stops it before
// its first instruction. Afterwards it kills the child.
func withDormant(attr syscall.SysProcAttr, f func(pid int) error) error {
	attr.Ptrace = true
	child, err := os.StartProcess("/proc/self/exe", []string{"dormant"}, &os.ProcAttr{Sys: &attr})
	if err != nil {
		return err
	}
	defer func() {
		_ = child.Kill()
		_, _ = child.Wait()
	}()
	return f(child.Pid)
}
