package fetch

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

// place moves a downloaded file, or the content of an archive, into a bundle's directory. It returns the file's name
// there, "" for an archive.
func (c Options) place(o *origin.Object, part, dir string, b *budget) (name string, err error) {
	name = o.Name
	if o.Name == "" || o.Packed {
		kind, err := archiveKind(part, o.Original, o.Packed)
		if err != nil {
			return "", err
		}
		if kind != "" {
			return "", c.unpack(kind, part, dir, b)
		}
		name = "model.onnx"
		if path.Ext(o.Original) == kerasEnd {
			name = "model.keras"
		}
	}
	to := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(part, to); err != nil {
		return "", err
	}
	return name, os.Chmod(to, 0o644)
}

// archiveKind says what kind of archive a file is: "zip", "tar" or "gzip", a compressed tar; "" for a model.
// It refuses
// what is no model and no archive either.
func archiveKind(file, name string, packed bool) (kind string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	begin := make([]byte, 512)
	n, _ := io.ReadFull(f, begin) // What is missing is no archive.
	begin = begin[:n]
	switch {
	case bytes.HasPrefix(begin, []byte("\x1f\x8b")):
		kind = "gzip"
	case len(begin) > 262 && string(begin[257:262]) == "ustar":
		kind = "tar"
	case bytes.HasPrefix(begin, []byte("PK\x03\x04")):
		kind = "zip"
	case packed:
		return "", errors.New("it is said to be an archive, and is neither a tar, a compressed tar nor a zip")
	}
	if packed || namesArchive(name) && kind != "" {
		return kind, nil
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	foreign, known := model.Recognise(f, info.Size())
	switch {
	case known && foreign.Format == model.FormatKeras && path.Ext(name) == kerasEnd:
		return "", nil
	case known:
		return "", fmt.Errorf("the file is no ONNX model: %w", foreign)
	}
	return kind, nil
}

// kerasEnd is the end of a Keras file's name. Such a file is a zip archive, too.
const kerasEnd = ".keras"

// namesArchive reports whether a file's name is that of an archive.
func namesArchive(name string) bool {
	ends := []string{".zip", ".tgz", ".tar.gz", ".tar"}
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
}

// unpacked bounds and checks what an archive has.
type unpacked struct {
	root   *os.Root
	files  int
	budget *budget
}

const (
	// maxName bounds the name of an archive's file in bytes, and maxDepth its folders.
	maxName, maxDepth = 1024, 32
	// maxDirectory bounds the directory of a zip archive in bytes, which is read into memory.
	maxDirectory = 8 << 20
)

// limitedReader reads at most so many bytes of a file. It must not be used concurrently.
type limitedReader struct {
	from io.ReaderAt
	left int64
}

// errDirectory refuses an archive's directory.
var errDirectory = fmt.Errorf("its directory has more than %d MiB", maxDirectory>>20)

// ReadAt implements [io.ReaderAt].
func (l *limitedReader) ReadAt(p []byte, offset int64) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errDirectory
	}
	return l.from.ReadAt(p, offset)
}

// unpack writes the files of an archive into a directory.
func (c Options) unpack(kind, part, dir string, b *budget) error {
	f, err := os.Open(part)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacked{root: root, files: origin.MaxFiles, budget: b}
	if kind == "zip" {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return c.unzip(u, f, info.Size())
	}
	var body io.Reader = bufio.NewReaderSize(f, block)
	if kind == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return fmt.Errorf("the archive cannot be read: %w", err)
		}
	}
	tape := tar.NewReader(body)
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive cannot be read: %w", err)
		}
		switch header.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
		default:
			return fmt.Errorf("the archive has %q, which is neither a file nor a folder; put the file "+
				"there instead", header.Name)
		}
		if err := u.write(header.Name, header.Size, tape); err != nil {
			return err
		}
	}
}

// unzip writes the files of a zip archive. Their sizes are known before.
func (c Options) unzip(u *unpacked, f *os.File, size int64) error {
	limit := &limitedReader{f, maxDirectory}
	archive, err := zip.NewReader(limit, size)
	limit.left = math.MaxInt64 // The files count otherwise.
	if err != nil {
		return fmt.Errorf("the archive cannot be read: %w", err)
	}
	var total int64
	for _, one := range archive.File {
		if total += int64(one.UncompressedSize64); total < 0 || total > c.MaxBytes {
			return c.tooLarge(max(total, c.MaxBytes))
		}
	}
	if free, err := freeBytes(c.Dir); err == nil && total+reserve > free {
		return fmt.Errorf("the archive has files of %s, and the disk of %s has %s free; make room "+
			"there", bytesText(total), c.Dir, bytesText(free))
	}
	for _, one := range archive.File {
		if one.Mode().IsDir() {
			continue
		}
		if !one.Mode().IsRegular() {
			return fmt.Errorf("the archive has %q, which is neither a file nor a folder; put the file "+
				"there instead", one.Name)
		}
		if err := u.writeZipped(one); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacked) writeZipped(one *zip.File) error {
	from, err := one.Open()
	if err != nil {
		return fmt.Errorf("the archive cannot be read: %w", err)
	}
	defer from.Close()
	return u.write(one.Name, int64(one.UncompressedSize64), from)
}

// write writes one file of an archive.
func (u *unpacked) write(name string, size int64, from io.Reader) error {
	if len(name) > maxName || strings.Count(name, "/") > maxDepth {
		return fmt.Errorf("the archive has a file with a name of %d bytes and %d folders; at most %d and %d are "+
			"taken", len(name), strings.Count(name, "/"), maxName, maxDepth)
	}
	clean := path.Clean(strings.TrimPrefix(name, "./"))
	if !filepath.IsLocal(clean) || strings.Contains(name, "\\") {
		return fmt.Errorf("the archive has a file %q, whose name leads out of it", name)
	}
	u.files--
	if size < 0 || u.files < 0 {
		return fmt.Errorf("the archive has more files than %d", origin.MaxFiles)
	}
	if err := u.root.MkdirAll(path.Dir(clean), 0o755); err != nil {
		return err
	}
	to, err := u.root.OpenFile(clean, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("the archive's file %q: %w", name, err)
	}
	n, err := io.Copy(&counted{to, u.budget}, io.LimitReader(from, size))
	if err = errors.Join(err, to.Close()); err == nil && n < size {
		err = fmt.Errorf("the archive's file %q is cut off", name)
	}
	return err
}

// counted is a file whose bytes count in a budget.
type counted struct {
	to     io.Writer
	budget *budget
}

// Write implements [io.Writer].
func (c *counted) Write(p []byte) (int, error) {
	if err := c.budget.unpack(int64(len(p))); err != nil {
		return 0, err
	}
	return c.to.Write(p)
}
