package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// makeReadOnly makes all mounts read-only and disables their set-user-ID programs.
func makeReadOnly() error {
	err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID,
	})
	if errors.Is(err, unix.ENOSYS) {
		err = remountReadOnly()
	}
	if err != nil {
		return fmt.Errorf("make the file system read-only: %w", err)
	}
	return nil
}

// remountReadOnly does the same mount by mount, for kernels before 5.12.
func remountReadOnly() error {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		target := unescapeMount(fields[4])
		flags := mountFlags(fields[5]) | unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID
		err := unix.Mount("", target, "", flags, "")
		// A mount that another one covers cannot be reached by its path, so the
		// function cannot write to it either.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return nil
}

// mountFlags reads the options of one mount. A remount must repeat them.
func mountFlags(options string) (flags uintptr) {
	known := map[string]uintptr{
		"nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "noatime": unix.MS_NOATIME,
		"nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	}
	for option := range strings.SplitSeq(options, ",") {
		flags |= known[option]
	}
	return flags
}

// unescapeMount decodes the kernel's escapes in a path: \040 for a space.
func unescapeMount(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
