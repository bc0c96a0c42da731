package kubernetes

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// newIndexCommand returns "image index".
func newIndexCommand() *cobra.Command {
	var to output
	c := &cobra.Command{
		Use:   "index FILE.tar...",
		Short: "Join the images of several architectures to one image",
		Long: `index writes a tar with the images of several files, each for another architecture, under one
name. Nodes take the one for their own. The digest that it prints is that of the index, which a
registry keeps.`,
		Example: `  faas-infer-kubernetes image index base-amd64.tar base-arm64.tar --tar base.tar`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := to.check(); err != nil {
				return err
			}
			var all []v1.Image
			for _, file := range args {
				images, err := image.ReadFile(file)
				if err != nil {
					return err
				}
				all = append(all, only(images)...)
			}
			return to.writeIndex(c, all)
		},
	}
	to.register(c.Flags(), "faas-infer/base:latest")
	return c
}

func only(images []image.Image) (all []v1.Image) {
	for _, i := range images {
		all = append(all, i.Image)
	}
	return all
}

// writeIndex is write for the images of several platforms.
func (o *output) writeIndex(c *cobra.Command, images []v1.Image) error {
	index, err := image.Index(images...)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if o.tar != "" {
		name := o.name
		if o.push != "" && !c.Flags().Changed("name") {
			name = o.push
		}
		if err := image.WriteIndex(o.tar, name, images...); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "Wrote %s: the image %s, %s\n", o.tar, name, digest)
	}
	if o.push == "" {
		return nil
	}
	return o.sendIndex(c, o.push, images)
}

func (o *output) sendIndex(c *cobra.Command, to string, images []v1.Image) error {
	digest, err := image.PushIndex(c.Context(), to, images, nil, image.WithPlain(o.plain...))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "Pushed %s: %s\n", to, digest)
	return nil
}

// sendFile pushes what a tar holds: one image, or the index of one image's platforms.
func (o *output) sendFile(c *cobra.Command, file, to string) error {
	images, err := image.ReadFile(file)
	if err != nil {
		return err
	}
	if len(images) == 1 {
		return o.send(c, to, images[0].Image)
	}
	for _, i := range images {
		if i.Name != images[0].Name {
			return fmt.Errorf("%s has the images %s and %s: give a file with one image", file, images[0].Name, i.Name)
		}
	}
	return o.sendIndex(c, to, only(images))
}

func newPushCommand() *cobra.Command {
	var to output
	c := &cobra.Command{
		Use:   "push FILE.tar NAME",
		Short: "Push the image in a tar to a registry, with all its platforms",
		Example: `  faas-infer-kubernetes image base --tar base.tar
  faas-infer-kubernetes image push base.tar registry.example.com/faas-infer/base:latest`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return to.sendFile(c, args[0], args[1])
		},
	}
	c.Flags().StringSliceVar(&to.plain, "plain-registry", nil, plainUsage)
	return c
}
