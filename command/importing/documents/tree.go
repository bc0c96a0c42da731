// Package documents reads what describes the models of other servers: the files of a directory or an archive, and the
// fields of YAML, JSON and protobuf's text. It remembers which fields were read, so that a report can name the rest. It
// knows no server, and bounds what it reads. Begin reading at [Open], [AsObject] and [ParseMessage].
package documents

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is read into memory or copied from files of others.
const (
	// MaxText is the maximum size in bytes of a file of settings.
	MaxText = 4 << 20
	// maxEntries is the maximum number of files and directories of a source.
	maxEntries = 100_000
	// maxRatio is the maximum of an archive's unpacked size over its size, above plainSize bytes. Weights of
	// models hardly become smaller.
	maxRatio, plainSize = 100, 1 << 30
)

// settings are the names of files of settings whose extension a model's file may have, too: MLServer's.
var settings = []string{"model-settings.json", "settings.json"}

// Tree is the files of a source: a directory, whose links lead nowhere else, or an archive.
type Tree struct {
	// FS has the files; nil for a file that is no archive.
	fs.FS
	// given is the path as the user wrote it. dir is the directory on the disk, "" for an archive.
	Given, Dir string
	// Close gives the files back.
	Close func() error
}

// Open opens a directory or an archive. Another regular file gives a tree without files.
func Open(given string) (*Tree, error) {
	info, err := os.Stat(given)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(given)
		if err != nil {
			return nil, err
		}
		t := &Tree{FS: root.FS(), Given: given, Dir: given, Close: root.Close}
		if _, err := fs.ReadDir(t, "."); err != nil {
			return nil, errors.Join(err, root.Close())
		}
		return t, nil
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is neither a file nor a directory")
	}
	begin, err := beginning(given)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(begin, "PK\x03\x04"), strings.HasPrefix(begin, "PK\x05\x06"):
		return openArchive(given, info.Size())
	case strings.HasPrefix(begin, "\x1f\x8b"):
		return nil, fmt.Errorf(
			"it is compressed with gzip; unpack it with `mkdir DIR && tar xzf %s -C DIR`, and import DIR",
			given,
		)
	}
	return &Tree{Given: given, Close: func() error { return nil }}, nil
}

func beginning(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b [4]byte
	n, err := io.ReadFull(f, b[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return string(b[:n]), nil
}

// openArchive opens a zip archive, and refuses one whose entries lead out of it, or are far larger than it.
func openArchive(given string, size int64) (*Tree, error) {
	z, err := zip.OpenReader(given)
	if err != nil {
		return nil, fmt.Errorf("it is no whole zip archive: %w; copy it again", err)
	}
	var unpacked uint64
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, "/")
		switch {
		case !filepath.IsLocal(filepath.FromSlash(name)) || strings.Contains(name, "\\"):
			err = fmt.Errorf(
				"its entry %q leads out of the archive; it may be made to overwrite other files, and is not unpacked",
				Short(f.Name))
		case f.Mode()&(fs.ModeType&^fs.ModeDir) != 0:
			err = fmt.Errorf("its entry %q is no file; it is not unpacked", Short(f.Name))
		case len(z.File) > maxEntries:
			err = fmt.Errorf("it has %d entries, and the maximum is %d", len(z.File), maxEntries)
		}
		if unpacked += f.UncompressedSize64; unpacked < f.UncompressedSize64 ||
			unpacked > plainSize && unpacked/maxRatio > uint64(size) {
			err = fmt.Errorf("its files would have more than %d times its %d bytes; it is not unpacked", maxRatio,
				size)
		}
		if err != nil {
			return nil, errors.Join(err, z.Close())
		}
	}
	return &Tree{FS: z, Given: given, Close: z.Close}, nil
}

// Text reads a file of settings. The error of a missing file wraps [fs.ErrNotExist].
func (t *Tree) Text(name string) ([]byte, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadText(f, path.Base(name))
}

// ReadText reads a file of settings, which name calls in errors.
func ReadText(f fs.File, name string) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	tooLarge := fmt.Errorf("%s has more than %d MiB, the maximum for a file of settings; a model's own file is none",
		name, MaxText>>20)
	switch {
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory; it must be a file", name)
	case info.Size() > MaxText:
		return nil, tooLarge
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxText {
		return nil, tooLarge
	}
	return text, nil
}

// IsFile reports whether a name stands for a file.
func (t *Tree) IsFile(name string) bool {
	info, err := fs.Stat(t, name)
	return err == nil && info.Mode().IsRegular()
}

// IsDir reports whether a name stands for a directory.
func (t *Tree) IsDir(name string) bool {
	info, err := fs.Stat(t, name)
	return err == nil && info.IsDir()
}

// List returns the names in a directory that are not hidden, nil if there is no such directory.
func (t *Tree) List(dir string) (names []string) {
	entries, err := fs.ReadDir(t, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "__pycache__" {
			names = append(names, e.Name())
		}
	}
	return names
}

// Dirs returns the names of the directories in a directory that are not hidden.
func (t *Tree) Dirs(dir string) (names []string) {
	for _, name := range t.List(dir) {
		if t.IsDir(path.Join(dir, name)) {
			names = append(names, name)
		}
	}
	return names
}

// Find returns the first of the names that is a file of a directory, "" if none is.
func (t *Tree) Find(dir string, names ...string) string {
	for _, name := range names {
		if t.IsFile(path.Join(dir, name)) {
			return path.Join(dir, name)
		}
	}
	return ""
}

// With returns the files of a directory that have one of the extensions, those called model first, then in the
// order of the extensions. Files of settings are none.
func (t *Tree) With(dir string, extensions ...string) (found []string) {
	all := slices.DeleteFunc(
		t.List(dir),
		func(name string) bool { return slices.Contains(settings, name) },
	)
	named := func(name string) bool { return strings.HasPrefix(name, "model.") }
	slices.SortStableFunc(all, func(a, b string) int {
		switch {
		case named(a) == named(b):
			return 0
		case named(a):
			return -1
		}
		return 1
	})
	for _, extension := range extensions {
		for _, name := range all {
			if path.Ext(name) == extension && t.IsFile(path.Join(dir, name)) &&
				!slices.Contains(found, path.Join(dir, name)) {
				found = append(found, path.Join(dir, name))
			}
		}
	}
	return found
}

// Walk lists the regular files below a directory, relative to it.
func (t *Tree) Walk(dir string) (files []string, err error) {
	entries := 0
	err = fs.WalkDir(t, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("%s has more than %d files and directories, the maximum", t.Path(dir), maxEntries)
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != dir && (base == "__pycache__" || strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if t.IsFile(name) { // A link to a file counts, too.
			files = append(files, strings.TrimPrefix(strings.TrimPrefix(name, dir), "/"))
		}
		return nil
	})
	return files, err
}

// Path returns the path of a file of the tree for people.
func (t *Tree) Path(name string) string { return filepath.Join(t.Given, filepath.FromSlash(name)) }
