package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// scratchRoot is where the private file system is mounted. At the end, its own
	// tmp directory covers it, so nobody can reach the rest by name.
	scratchRoot = "/tmp"
	// maxScratchFiles limits the kernel memory that empty files can take.
	maxScratchFiles = 64 << 10
	// minScratch is enough for the directories and a small file, in bytes.
	minScratch = 1 << 20
)

// mountAll mounts all that a function may see. The notes say which isolation is
// missing.
func (p functionPlan) mountAll() (notes []string, err error) {
	values, size, err := readSecrets(p.Secrets)
	if err != nil {
		return nil, err
	}
	sources, err := p.hold()
	if err != nil {
		return nil, err
	}
	defer sources.close()
	if err := cutOff(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(SecretsDir, 0o755); err != nil {
		return nil, fmt.Errorf("directory for secrets: %w", err)
	}
	if err := makeReadOnly(); err != nil {
		return nil, err
	}
	// A new /proc shows only the processes of this namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	private, err := p.makeScratch()
	if err != nil {
		return nil, err
	}
	defer private.Close()
	if err := p.hide(private); err != nil {
		return nil, err
	}
	if notes, err = p.makeHome(private, sources); err != nil {
		return nil, err
	}
	if err := openPrivate(private); err != nil {
		return nil, err
	}
	if err := mountSecrets(values, size, p.User); err != nil {
		return nil, err
	}
	return notes, nil
}

// held keeps open the files of the machine that appear elsewhere in the sandbox, because
// mounts will hide their own paths.
type held struct{ bundle, program *os.File }

func (p functionPlan) hold() (held, error) {
	var h held
	fd, err := unix.Open(p.Bundle, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return h, fmt.Errorf("bundle %s: %w", p.Bundle, err)
	}
	h.bundle = os.NewFile(uintptr(fd), p.Bundle)
	// This program's file may have been replaced or removed since the start.
	if self, err := os.Executable(); err == nil {
		if fd, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			h.program = os.NewFile(uintptr(fd), self)
		}
	}
	return h, nil
}

func (h held) close() {
	_ = h.bundle.Close()
	if h.program != nil {
		_ = h.program.Close()
	}
}

// pathOf returns a path that leads to an open file, wherever the file is.
func pathOf(file *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(file.Fd())) }

// scratch is the open root directory of the private file system.
type scratch struct{ *os.File }

// at returns the path of a directory in it.
func (s scratch) at(name string) string { return pathOf(s.File) + "/" + name }

// makeScratch makes the private file system with the directories that the function may
// write to.
func (p functionPlan) makeScratch() (s scratch, err error) {
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", max(p.Scratch, minScratch), maxScratchFiles)
	if err := unix.Mount("tmpfs", scratchRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return s, fmt.Errorf("mount %s: %w", scratchRoot, err)
	}
	fd, err := unix.Open(scratchRoot, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return s, fmt.Errorf("private directory: %w", err)
	}
	s = scratch{os.NewFile(uintptr(fd), scratchRoot)}
	if err := p.fill(s); err != nil {
		return s, errors.Join(fmt.Errorf("private directory: %w", err), s.Close())
	}
	return s, nil
}

// fill makes the directories of the private file system.
func (p functionPlan) fill(s scratch) error {
	for name, mode := range map[string]os.FileMode{
		"tmp": 0o777 | os.ModeSticky, "vartmp": 0o777 | os.ModeSticky, "shm": 0o777 | os.ModeSticky,
		"upper": 0o755, "work": 0o700, "lower": 0o755, "empty": 0o555, "home": 0o755, "home/app": 0o755,
	} {
		if err := os.MkdirAll(s.at(name), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(s.at(name), mode); err != nil {
			return err
		}
	}
	if err := os.Chown(s.at("upper"), p.User, p.User); err != nil {
		return err
	}
	return os.WriteFile(s.at("home/faas-infer"), nil, 0o644)
}

// hide covers /root and the directories in Hide with empty ones, and the files in Mask.
func (p functionPlan) hide(private scratch) error {
	for _, dir := range append([]string{"/root"}, p.Hide...) {
		if err := cover(private.at("empty"), dir, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	// A device at the end of a mount without devices cannot be opened.
	for _, file := range p.Mask {
		if err := bind("/dev/null", file, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

// makeHome covers /home with a directory that holds the bundle and this program.
func (p functionPlan) makeHome(private scratch, sources held) (notes []string, err error) {
	if err := bind(private.at("home"), "/home", unix.MS_RDONLY); err != nil {
		return nil, err
	}
	if sources.program != nil {
		if err := bind(pathOf(sources.program), ProgramFile, unix.MS_RDONLY); err != nil {
			return nil, err
		}
	}
	return p.mountBundle(private, sources.bundle)
}

// openPrivate mounts the directories that the function may write to at their usual
// paths.
func openPrivate(private scratch) error {
	for target, name := range map[string]string{"/var/tmp": "vartmp", "/dev/shm": "shm", "/tmp": "tmp"} {
		// A symbolic link leads to another of these directories.
		if info, err := os.Lstat(target); err == nil && !info.IsDir() {
			continue
		}
		if err := cover(private.at(name), target, 0); err != nil {
			return err
		}
	}
	return nil
}

// cover binds source over target if target is a directory.
func cover(source, target string, flags uintptr) error {
	info, err := os.Stat(target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", target, err)
	}
	return bind(source, target, flags)
}

// bind mounts source at target with flags, and without set-user-ID programs and devices.
func bind(source, target string, flags uintptr) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	flags |= unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("", target, "", flags, ""); err != nil {
		return fmt.Errorf("restrict %s: %w", target, err)
	}
	return nil
}
