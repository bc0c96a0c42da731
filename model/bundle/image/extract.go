package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// extraction copies a bundle out of an image.
type extraction struct {
	root *os.Root
	// prefix begins the names of the bundle's files.
	prefix string
	// bytes and files are what is left of the limits.
	bytes int64
	files int
	// links are made last. Nothing can then be written through one.
	links []link
}

type link struct {
	name, target string
	hard         bool
}

// extract writes the image's bundle into dir.
func (s settings) extract(ctx context.Context, r *Resolved, dir string) error {
	image, err := upper(r.image, r.Bundle)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	flat := mutate.Extract(image)
	defer flat.Close()
	x := &extraction{root: root, prefix: strings.TrimPrefix(r.Bundle, "/") + "/", bytes: s.maxBytes, files: s.maxFiles}
	tape := tar.NewReader(flat)
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return x.makeLinks()
		}
		if err != nil {
			return fmt.Errorf("read the layers: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.entry(header, tape); err != nil {
			return err
		}
	}
}

// layers is an image with only some of its layers.
type layers struct {
	v1.Image
	chosen []v1.Layer
}

// Layers implements [v1.Image].
func (l layers) Layers() ([]v1.Layer, error) { return l.chosen, nil }

// upper leaves out the layers below the one whose annotation says that it has the
// whole bundle.
func upper(image v1.Image, dir string) (v1.Image, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	all, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for i := len(manifest.Layers) - 1; i >= 0 && len(all) == len(manifest.Layers); i-- {
		if manifest.Layers[i].Annotations[Label] == dir {
			return layers{image, all[i:]}, nil
		}
	}
	return image, nil
}

// entry writes one entry of the flattened image if it belongs to the bundle.
func (x *extraction) entry(header *tar.Header, data io.Reader) error {
	name, ok := strings.CutPrefix(strings.TrimPrefix(path.Clean(header.Name), "/"), x.prefix)
	if !ok || name == "" {
		return nil
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("the name %q leads out of the bundle", header.Name)
	}
	if x.files--; x.files < 0 {
		return fmt.Errorf("%w: it has more files than the limit", ErrTooLarge)
	}
	if err := x.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("unpack the bundle: %w", err)
	}
	if err := x.write(name, header, data); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	return nil
}

func (x *extraction) write(name string, header *tar.Header, data io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return x.root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		return x.writeFile(name, header, data)
	case tar.TypeSymlink:
		if !contained(name, header.Linkname) {
			return fmt.Errorf("the symbolic link leads to %q, out of the bundle; put the file there instead", header.Linkname)
		}
		x.links = append(x.links, link{name: name, target: header.Linkname})
		return nil
	case tar.TypeLink:
		target, ok := strings.CutPrefix(strings.TrimPrefix(path.Clean(header.Linkname), "/"), x.prefix)
		if !ok || !filepath.IsLocal(target) {
			return fmt.Errorf("the hard link leads to %q, out of the bundle; put the file there instead", header.Linkname)
		}
		x.links = append(x.links, link{name: name, target: target, hard: true})
		return nil
	}
	return errors.New("it is neither a file nor a directory nor a link")
}

func (x *extraction) writeFile(name string, header *tar.Header, data io.Reader) error {
	if x.bytes -= header.Size; header.Size < 0 || x.bytes < 0 {
		return fmt.Errorf("%w: its files have more bytes than the limit", ErrTooLarge)
	}
	mode := fs.FileMode(0o644)
	if header.Mode&0o111 != 0 {
		mode = 0o755
	}
	f, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, data, header.Size)
	return errors.Join(err, f.Close())
}

// makeLinks makes the links, hard links first: they lead to files only.
func (x *extraction) makeLinks() error {
	for _, hard := range []bool{true, false} {
		for _, l := range x.links {
			if l.hard != hard {
				continue
			}
			make := x.root.Symlink
			if hard {
				make = x.root.Link
			}
			if err := make(l.target, l.name); err != nil {
				return fmt.Errorf("unpack %s: %w", l.name, err)
			}
		}
	}
	return x.checkLinks()
}

// checkLinks refuses links that lead out of the bundle through other links.
func (x *extraction) checkLinks() error {
	for _, l := range x.links {
		if _, err := x.root.Stat(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the link %s leads to %q, out of the bundle: %w", l.name, l.target, err)
		}
	}
	return nil
}
