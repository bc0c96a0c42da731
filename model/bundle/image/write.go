package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The file names in the tar, and the annotations from which loaders take an image's
// name.
const (
	layoutFile    = "oci-layout"
	indexFile     = "index.json"
	dockerFile    = "manifest.json"
	nameContainer = "io.containerd.image.name"
	nameReference = "org.opencontainers.image.ref.name"
)

// layout is the content of layoutFile.
const layout = `{"imageLayoutVersion":"1.0.0"}`

// Image is an image and its name, as registry.example.com/team/name:tag.
type Image struct {
	Name string
	v1.Image
}

// docker is an image in Docker's index.
type docker struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// WriteFile writes images to a tar and replaces an existing file atomically. Layers
// that several images share are in it once. The same images give the same file.
func WriteFile(path string, images ...Image) (err error) {
	return atomically(path, func(w writer) error { return w.images(images) })
}

// atomically replaces the file at path by the tar that put writes.
func atomically(path string, put func(writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write images: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write images to %s: %w", path, err), os.Remove(f.Name()))
		}
	}()
	w := writer{tar.NewWriter(f), make(map[v1.Hash]bool)}
	err = put(w)
	if err == nil {
		err = w.Close()
	}
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writer is a tar that is being written.
type writer struct {
	*tar.Writer
	blobs map[v1.Hash]bool
}

// images writes images and the files that list them.
func (w writer) images(images []Image) error {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	old := []docker{}
	for _, image := range images {
		tag, err := name.NewTag(image.Name)
		if err != nil {
			return err
		}
		descriptor, d, err := w.image(image)
		if err != nil {
			return err
		}
		descriptor.Annotations = map[string]string{nameContainer: familiar(tag), nameReference: tag.TagStr()}
		index.Manifests = append(index.Manifests, descriptor)
		d.RepoTags = []string{familiar(tag)}
		old = append(old, d)
	}
	return w.lists(map[string]any{layoutFile: json.RawMessage(layout), indexFile: index, dockerFile: old})
}

// index writes an index of images that are written already, and the files that list it. Docker's list has no
// indexes.
func (w writer) index(as string, index v1.ImageIndex) error {
	tag, err := name.NewTag(as)
	if err != nil {
		return err
	}
	text, err := index.RawManifest()
	if err != nil {
		return err
	}
	descriptor, err := partial.Descriptor(index)
	if err != nil {
		return err
	}
	if err := w.blob(descriptor.Digest, text); err != nil {
		return err
	}
	descriptor.Annotations = map[string]string{nameContainer: familiar(tag), nameReference: tag.TagStr()}
	top := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*descriptor}}
	return w.lists(map[string]any{layoutFile: json.RawMessage(layout), indexFile: top})
}

// lists writes files of JSON by their names.
func (w writer) lists(files map[string]any) error {
	for _, file := range []string{layoutFile, indexFile, dockerFile} {
		value, ok := files[file]
		if !ok {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := w.file(file, int64(len(text)), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}

// familiar is a tag's name as loaders write it: Docker Hub is docker.io.
func familiar(tag name.Tag) string {
	if tag.RegistryStr() != name.DefaultRegistry {
		return tag.Name()
	}
	return "docker.io/" + tag.RepositoryStr() + ":" + tag.TagStr()
}

// image writes an image's blobs.
func (w writer) image(image v1.Image) (v1.Descriptor, docker, error) {
	var d docker
	layers, err := image.Layers()
	if err != nil {
		return v1.Descriptor{}, d, err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return v1.Descriptor{}, d, err
		}
		if err := w.layer(digest, layer); err != nil {
			return v1.Descriptor{}, d, err
		}
		d.Layers = append(d.Layers, blob(digest))
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return v1.Descriptor{}, d, err
	}
	digest, err := image.ConfigName()
	if err != nil {
		return v1.Descriptor{}, d, err
	}
	d.Config = blob(digest)
	if err := w.blob(digest, config); err != nil {
		return v1.Descriptor{}, d, err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return v1.Descriptor{}, d, err
	}
	descriptor, err := partial.Descriptor(image)
	if err != nil {
		return v1.Descriptor{}, d, err
	}
	descriptor.ArtifactType = "" // It is an image, not an artifact.
	return *descriptor, d, w.blob(descriptor.Digest, manifest)
}

func (w writer) layer(digest v1.Hash, layer v1.Layer) error {
	if w.blobs[digest] {
		return nil
	}
	size, err := layer.Size()
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	w.blobs[digest] = true
	return w.file(blob(digest), size, content)
}

func (w writer) blob(digest v1.Hash, content []byte) error {
	if w.blobs[digest] {
		return nil
	}
	w.blobs[digest] = true
	return w.file(blob(digest), int64(len(content)), bytes.NewReader(content))
}

func (w writer) file(name string, size int64, content io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(w, content)
	if err == nil && n != size {
		err = fmt.Errorf("%s has %d bytes instead of %d: its files changed meanwhile; try again", name, n, size)
	}
	return err
}

// blob is the path of a blob.
func blob(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
