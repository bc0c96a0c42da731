package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock/workdir"
)

// receive makes a directory below Root ready for a content and holds it. It stays until received is called, and nobody
// else can write there.
func (t *Tidier) receive(ctx context.Context, at string) (*os.File, error) {
	t.looking.Lock()
	defer t.looking.Unlock()
	whole := filepath.Join(t.Root, at)
	in, err := os.OpenFile(filepath.Dir(whole), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if err := seal(place{in, filepath.Base(whole)}); err != nil {
		return nil, err
	}
	held, err := workdir.Hold(ctx, whole, beginPatience)
	if err != nil {
		return nil, err
	}
	if t.coming == nil {
		t.coming = map[string]int64{}
	}
	t.coming[at] = 0
	return held, nil
}

// received ends what receive has begun.
func (t *Tidier) received(at string) {
	t.looking.Lock()
	defer t.looking.Unlock()
	delete(t.coming, at)
}

// makeRoom keeps room for so many more bytes of a content that is being received, beside those that others will still
// get. It removes what no instance holds, least recently used first, but only if that suffices. Nothing that is in use
// goes, and for a content that is sent ahead nothing that was used lately. The error says why there is no room.
func (t *Tidier) makeRoom(at string, more int64, ahead bool) error {
	t.looking.Lock()
	defer t.looking.Unlock()
	t.coming[at] = 0 // It may have been counted before.
	now := time.Now()
	s, err := t.survey(now)
	defer s.close()
	var disk unix.Statfs_t
	if failed := unix.Statfs(t.Root, &disk); failed != nil {
		return errors.Join(err, failed)
	}
	free, keep := int64(disk.Bavail)*disk.Bsize, int64(disk.Blocks)*disk.Bsize/100*int64(t.KeepFree)
	var bytes, rest, own int64
	for _, one := range s.all {
		bytes, rest = bytes+one.bytes, rest+one.rest
		if one.name() == at {
			own = one.bytes
		}
	}
	fits := func(freed int64) error {
		switch {
		case bytes+more-freed > t.Size:
			return fmt.Errorf("the model has %d bytes more; what is in use, or is wanted as much, takes %d of the %d bytes that "+
				"copies may have (--size; chart: copies.size)", more, bytes-freed, t.Size)
		case free+freed-rest-more < keep:
			return fmt.Errorf("the model has %d bytes more, and of the disk's %d free bytes %d stay free and %d are for models "+
				"that arrive", more, free+freed, keep, rest)
		}
		return nil
	}
	var out []unneeded
	freed := int64(0)
	for _, one := range inOrder(s.all) {
		if fits(freed) == nil || one.held || one.coming || ahead && now.Sub(one.used) < 2*ConfirmAfter {
			break
		}
		freed += one.bytes
		out = append(out, unneeded{one, "a model needs its room"})
	}
	if short := fits(freed); short != nil {
		return errors.Join(err, short)
	}
	removed, failed := remove(out, nil)
	freed = 0
	for _, r := range removed {
		freed += r.Bytes
	}
	if short := fits(freed); short != nil { // An instance has begun to use one of them.
		return errors.Join(err, failed, short)
	}
	t.coming[at] = own + more
	return nil // What could not be looked at does not keep a model out.
}

// seal makes a directory in which nobody else can write. Other users' files there go first: the kubelet makes the
// directory for everybody, if an instance mounts it before its content comes. After an error the directory is closed to
// all, or it is gone, so the next call begins again.
func seal(p place) error {
	mkdir := func() error {
		err := unix.Mkdirat(int(p.in.Fd()), p.name, closed)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &fs.PathError{Op: "mkdir", Path: p.name, Err: err}
		}
		return nil
	}
	if err := mkdir(); err != nil {
		return err
	}
	is, err := statIn(p.in, p.name)
	if err != nil {
		return err
	}
	if !isDir(is) || int(is.Uid) != os.Geteuid() { // Another user has made it.
		if err = unlink(p, 0); errors.Is(err, unix.EISDIR) {
			_, err = moveAway(p.in, p) // The tidier removes it.
		}
		if err = errors.Join(err, mkdir()); err != nil {
			return err
		}
	}
	dir, err := openDir(p.in, p.name)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user, who has just made it", p.name)
	}
	if info.Mode().Perm() == private {
		return nil
	}
	if err := dir.Chmod(closed); err != nil {
		return err
	}
	if err := evacuate(dir, p.in); err != nil {
		return err
	}
	return dir.Chmod(private)
}

// evacuate empties a directory. Its directories become leftovers in another one, for the tidier.
func evacuate(dir, to *os.File) error {
	err := eachName(dir, func(name string) error {
		p := place{dir, name}
		err := unlink(p, 0)
		if errors.Is(err, unix.EISDIR) {
			_, err = moveAway(to, p)
		}
		return unlessGone(err)
	})
	if err != nil {
		return err
	}
	if _, err = dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return eachName(dir, func(name string) error { return fmt.Errorf("%s still has %q", dir.Name(), name) })
}
