package image

import (
	"cmp"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Index joins images of one content for several platforms to one image, from which every node takes its own. The
// same images give the same index, whatever their order. Two images for one platform are an error.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	var all []mutate.IndexAddendum
	for _, i := range images {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, err
		}
		platform := v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
		if slices.ContainsFunc(all, func(a mutate.IndexAddendum) bool { return a.Platform.Equals(platform) }) {
			return nil, fmt.Errorf("two of the images are for %s: give one for each platform", platform.String())
		}
		all = append(all, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	slices.SortFunc(all, func(a, b mutate.IndexAddendum) int {
		return cmp.Compare(a.Platform.String(), b.Platform.String())
	})
	return mutate.IndexMediaType(mutate.AppendManifests(empty.Index, all...), types.OCIImageIndex), nil
}

// WriteIndex writes an index of images for several platforms to a tar, as [WriteFile] writes images.
func WriteIndex(path, name string, images ...v1.Image) error {
	index, err := Index(images...)
	if err != nil {
		return err
	}
	return atomically(path, func(w writer) error {
		for _, i := range images {
			if _, _, err := w.image(Image{Image: i}); err != nil {
				return err
			}
		}
		return w.index(name, index)
	})
}

// OnPlatform returns the image for linux on an architecture. If there is only one image, it is that one.
func OnPlatform(images []Image, architecture string) (v1.Image, error) {
	var have []string
	for _, i := range images {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, err
		}
		if len(images) == 1 || config.OS == "linux" && config.Architecture == architecture {
			return i.Image, nil
		}
		have = append(have, config.OS+"/"+config.Architecture)
	}
	return nil, fmt.Errorf("there is no image for linux/%s, only for %v", architecture, have)
}
