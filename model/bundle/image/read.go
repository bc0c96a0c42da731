package image

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxText is the maximum number of bytes of an index, manifest or config.
const maxText = 8 << 20

// section is the position of a file in the tar, in bytes.
type section struct{ offset, size int64 }

// archiveFile is a tar whose files are read when they are used.
type archiveFile struct {
	path     string
	sections map[string]section
}

// ReadFile reads the images in a tar that [WriteFile] or another tool wrote as an
// OCI image layout. An index stands for its images. The file must not change while the images are used.
func ReadFile(path string) ([]Image, error) {
	f, err := scan(path)
	if err != nil {
		return nil, fmt.Errorf("read images from %s: %w", path, err)
	}
	text, err := f.text(indexFile)
	if err != nil {
		return nil, fmt.Errorf("read images from %s: it is not an OCI image layout: %w", path, err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("read images from %s: %s: %w", path, indexFile, err)
	}
	var images []Image
	for _, d := range index.Manifests {
		all := []v1.Descriptor{d}
		if d.MediaType.IsIndex() {
			if all, err = f.platforms(d); err != nil {
				return nil, fmt.Errorf("read images from %s: %w", path, err)
			}
		}
		for _, one := range all {
			if !one.MediaType.IsImage() {
				continue
			}
			image, err := f.image(one)
			if err != nil {
				return nil, fmt.Errorf("read images from %s: %w", path, err)
			}
			images = append(images, Image{Name: cmp.Or(d.Annotations[nameContainer], d.Annotations[nameReference]), Image: image})
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("read images from %s: it has no image", path)
	}
	return images, nil
}

// platforms lists the images of an index.
func (f *archiveFile) platforms(d v1.Descriptor) ([]v1.Descriptor, error) {
	text, err := f.checked(d.Digest)
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	return index.Manifests, nil
}

// scan finds the positions of the tar's files.
func scan(path string) (*archiveFile, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	f := &archiveFile{path: path, sections: make(map[string]section)}
	tape := tar.NewReader(opened)
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
		// The tar reader has no buffer, so opened is at the file's first byte.
		offset, err := opened.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			f.sections[strings.TrimPrefix(header.Name, "./")] = section{offset, header.Size}
		}
	}
}

// open reads one of the tar's files.
func (f *archiveFile) open(name string) (io.ReadCloser, error) {
	s, ok := f.sections[name]
	if !ok {
		return nil, fmt.Errorf("it has no %s", name)
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(opened, s.offset, s.size), opened}, nil
}

func (f *archiveFile) text(name string) ([]byte, error) {
	if s := f.sections[name]; s.size > maxText {
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %d", name, s.size, maxText)
	}
	r, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// checked is a blob's text. A text that does not match the digest is an error.
func (f *archiveFile) checked(h v1.Hash) ([]byte, error) {
	text, err := f.text(blob(h))
	if err != nil {
		return nil, err
	}
	if got, _, err := v1.SHA256(strings.NewReader(string(text))); err != nil || got != h {
		return nil, errors.Join(fmt.Errorf("%s is damaged", blob(h)), err)
	}
	return text, nil
}

// image reads an image's manifest and config.
func (f *archiveFile) image(d v1.Descriptor) (v1.Image, error) {
	i := &image{file: f, kind: d.MediaType}
	var err error
	if i.rawManifest, err = f.checked(d.Digest); err != nil {
		return nil, err
	}
	if i.manifest, err = v1.ParseManifest(strings.NewReader(string(i.rawManifest))); err != nil {
		return nil, err
	}
	if i.rawConfig, err = f.checked(i.manifest.Config.Digest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(i)
}

// image implements [partial.CompressedImageCore].
type image struct {
	file                   *archiveFile
	kind                   types.MediaType
	manifest               *v1.Manifest
	rawManifest, rawConfig []byte
}

func (i *image) MediaType() (types.MediaType, error) { return i.kind, nil }
func (i *image) RawManifest() ([]byte, error)        { return i.rawManifest, nil }
func (i *image) RawConfigFile() ([]byte, error)      { return i.rawConfig, nil }

func (i *image) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, d := range i.manifest.Layers {
		if d.Digest == h {
			return &layer{i.file, d}, nil
		}
	}
	return nil, fmt.Errorf("the image has no layer %s", h)
}

// layer implements [partial.CompressedLayer].
type layer struct {
	file       *archiveFile
	descriptor v1.Descriptor
}

func (l *layer) Digest() (v1.Hash, error)            { return l.descriptor.Digest, nil }
func (l *layer) Size() (int64, error)                { return l.descriptor.Size, nil }
func (l *layer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }
func (l *layer) Descriptor() (*v1.Descriptor, error) { return &l.descriptor, nil }
func (l *layer) Compressed() (io.ReadCloser, error)  { return l.file.open(blob(l.descriptor.Digest)) }
