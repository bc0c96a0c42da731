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

// smallLayer is the maximum size of a layer's files, in bytes, for its compressed
// form to be kept in memory. A larger layer is compressed twice.
const smallLayer = 128 << 20

// Entry is a file, a directory or a symbolic link of a layer.
type Entry struct {
	// Name is its path, without a leading slash.
	Name string
	// Mode is its type and permissions.
	Mode fs.FileMode
	// Owner is its user and group, 0 for root.
	Owner int
	// Link is the target of a symbolic link.
	Link string
	// Size is the size of a file in bytes, and Open opens the file.
	Size int64
	Open func() (io.ReadCloser, error)
}

// Bytes is a file with this content.
func Bytes(name string, mode fs.FileMode, content []byte) Entry {
	return Entry{Name: name, Mode: mode, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

// File is a copy of the file at the path from on this machine, with these
// permissions.
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

// file is the entry, called name, of the file, directory or link at the path from.
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

// Layer is the layer with these entries, sorted by name. It reads the files when its
// content is used, so they must not change before. The same entries give the same
// layer.
func Layer(entries []Entry) (v1.Layer, error) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	var size int64
	for i, e := range entries {
		if i > 0 && entries[i-1].Name == e.Name && (!e.Mode.IsDir() || !entries[i-1].Mode.IsDir()) {
			return nil, fmt.Errorf("a layer has two entries named %s; remove one", e.Name)
		}
		size += e.Size
	}
	// The first of two directories with the same name counts.
	entries = slices.CompactFunc(entries, func(a, b Entry) bool { return a.Name == b.Name })
	options := []tarball.LayerOption{tarball.WithMediaType(types.OCILayer)}
	if size <= smallLayer {
		options = append(options, tarball.WithCompressedCaching)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return pack(entries), nil }, options...)
}

// pack is the tar of the entries, made while it is read.
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
	// A file that grew meanwhile is cut here. A file that shrank is an error.
	_, err = io.CopyN(tape, content, e.Size)
	return err
}
