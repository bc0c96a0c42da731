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
	// scratchRoot is where the private file system is mounted. At the end its
	// own tmp covers it, so that nobody reaches the rest by name.
	scratchRoot = "/tmp"
	// maxScratchFiles bounds the kernel's memory for names of empty files.
	maxScratchFiles = 64 << 10
	// leastScratch is what the directories alone and a small file need.
	leastScratch = 1 << 20
)

// furnish mounts all that a function is to see. The notes tell what it goes
// without.
func (p functionPlan) furnish() (notes []string, err error) {
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
	// One that knows the processes of this namespace.
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

// held are things of the machine's that are to be seen elsewhere, held open
// because their own places will be hidden.
type held struct{ bundle, program *os.File }

func (p functionPlan) hold() (held, error) {
	var h held
	fd, err := unix.Open(p.Bundle, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return h, fmt.Errorf("bundle %s: %w", p.Bundle, err)
	}
	h.bundle = os.NewFile(uintptr(fd), p.Bundle)
	// It may have been replaced or removed since this process started.
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

// pathOf is a name of an open file that leads to it wherever it is.
func pathOf(file *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(file.Fd())) }

// scratch is the private file system, held open.
type scratch struct{ *os.File }

// at is a name of a directory in it.
func (s scratch) at(name string) string { return pathOf(s.File) + "/" + name }

// makeScratch makes the private file system with the directories that the
// function is to write to.
func (p functionPlan) makeScratch() (s scratch, err error) {
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", max(p.Scratch, leastScratch), maxScratchFiles)
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

// fill makes the directories.
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

// hide covers the directories that are not the function's business.
func (p functionPlan) hide(private scratch) error {
	for _, dir := range append([]string{"/root"}, p.Hide...) {
		if err := cover(private.at("empty"), dir, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

// makeHome covers /home with the bundle and this program.
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

// openPrivate gives the function the directories that it may write to, each in
// its usual place.
func openPrivate(private scratch) error {
	for target, name := range map[string]string{"/var/tmp": "vartmp", "/dev/shm": "shm", "/tmp": "tmp"} {
		// A link leads to another of them.
		if info, err := os.Lstat(target); err == nil && !info.IsDir() {
			continue
		}
		if err := cover(private.at(name), target, 0); err != nil {
			return err
		}
	}
	return nil
}

// cover binds source over target, unless there is no such directory to be
// seen.
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

// bind shows source at target too, without set-user-ID programs and devices,
// and with flags.
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
