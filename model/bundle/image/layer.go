package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// smallLayer is how large a layer's files may be together, in bytes, for its
// compressed form to be kept in memory instead of being made twice.
const smallLayer = 128 << 20

// Entry is a file, a directory or a symbolic link of a layer. All belong to root.
type Entry struct {
	// Name is its path, with no slash at the beginning.
	Name string
	// Mode is its type and rights.
	Mode fs.FileMode
	// Owner is its user and group; root is 0.
	Owner int
	// Link is where a symbolic link leads.
	Link string
	// Size is a file's size in bytes, and Open opens it.
	Size int64
	Open func() (io.ReadCloser, error)
}

// Bytes is a file of which the content is known.
func Bytes(name string, mode fs.FileMode, content []byte) Entry {
	return Entry{Name: name, Mode: mode, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

// File is a copy of a file of this machine, with these rights.
func File(name string, mode fs.FileMode, from string) (Entry, error) {
	info, err := os.Stat(from)
	if err != nil {
		return Entry{}, err
	}
	if !info.Mode().IsRegular() {
		return Entry{}, fmt.Errorf("%s is not a file", from)
	}
	return Entry{Name: name, Mode: mode, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(from) }}, nil
}

// file is what was found at the path from, called name.
func file(from, name string, found fs.DirEntry) (Entry, error) {
	info, err := found.Info()
	if err != nil {
		return Entry{}, err
	}
	switch {
	case info.IsDir():
		return Entry{Name: name, Mode: fs.ModeDir | 0o755}, nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		return Entry{Name: name, Mode: fs.ModeSymlink | 0o777, Link: target}, err
	case !info.Mode().IsRegular():
		return Entry{}, fmt.Errorf("%s is neither a file nor a directory nor a symbolic link", from)
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	return File(name, mode, from)
}

// Layer is the layer with these entries, in the order of their names. It reads
// the files when it is asked for; they must stay as they are until then. The same
// entries are the same layer.
func Layer(entries []Entry) (v1.Layer, error) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	var size int64
	for i, e := range entries {
		if i > 0 && entries[i-1].Name == e.Name && (!e.Mode.IsDir() || !entries[i-1].Mode.IsDir()) {
			return nil, fmt.Errorf("two files of a layer are called %s", e.Name)
		}
		size += e.Size
	}
	// Of a directory that is there twice the first counts.
	entries = slices.CompactFunc(entries, func(a, b Entry) bool { return a.Name == b.Name })
	options := []tarball.LayerOption{tarball.WithMediaType(types.OCILayer)}
	if size <= smallLayer {
		options = append(options, tarball.WithCompressedCaching)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return pack(entries), nil }, options...)
}

// pack is the tar of the entries, made as it is read.
func pack(entries []Entry) io.ReadCloser {
	from, to := io.Pipe()
	go func() {
		tape := tar.NewWriter(to)
		for _, e := range entries {
			if err := e.write(tape); err != nil {
				to.CloseWithError(fmt.Errorf("pack %s: %w", e.Name, err))
				return
			}
		}
		to.CloseWithError(tape.Close())
	}()
	return from
}

func (e Entry) write(tape *tar.Writer) error {
	header := &tar.Header{Name: e.Name, Mode: int64(e.Mode.Perm()), Uid: e.Owner, Gid: e.Owner, ModTime: Epoch, Format: tar.FormatPAX}
	if e.Mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case e.Mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, e.Name+"/"
	case e.Mode&fs.ModeSymlink != 0:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.Link
	default:
		header.Typeflag, header.Size = tar.TypeReg, e.Size
	}
	if err := tape.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	content, err := e.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	// A file that grows meanwhile ends here, one that shrinks is an error.
	_, err = io.CopyN(tape, content, e.Size)
	return err
}
