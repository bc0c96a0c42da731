package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/model/bundle/image/debian"
)

// NewImageCommand returns "faas-infer-kubernetes image", which builds container images
// without a container engine.
func NewImageCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Build container images of functions and of the provider without a container engine",
		Long: `On Kubernetes, a function's image is a container image in a registry. These commands
build such images from bundles, and the provider's own image, with Debian's packages
and the programs beside this one. They need only apt. The same files give the same
image. Credentials for registries come from docker's or podman's login.`,
		Example: `  faas-infer-kubernetes image base --push registry.example.com/faas-infer/base:latest
  faas-infer-kubernetes image function mnist.onnx --base registry.example.com/faas-infer/base:latest --push registry.example.com/team/mnist:v1
  faas-infer-kubernetes image provider --tar provider.tar`,
	}
	c.AddCommand(newBaseCommand(), newProviderImageCommand(), newFunctionImageCommand(), newIndexCommand(), newPushCommand())
	return c
}

// output says where an image goes.
type output struct {
	tar, push, name string
	plain           []string
}

// plainUsage is the help text of --plain-registry.
const plainUsage = "registries without TLS, such as registry.example.com:5000; not needed for private addresses"

func (o *output) register(flags *pflag.FlagSet, name string) {
	flags.StringVar(&o.tar, "tar", "", "file to write: an OCI image layout in a tar, which ctr, podman and docker load")
	flags.StringVar(&o.push, "push", "", "image's name in the registry to push it to, such as registry.example.com/team/name:tag")
	flags.StringVar(&o.name, "name", name, "image's name in the file of --tar, if it differs from --push")
	flags.StringSliceVar(&o.plain, "plain-registry", nil, plainUsage)
}

func (o *output) check() error {
	if o.tar == "" && o.push == "" {
		return errors.New("--tar and --push are missing: give --tar FILE, --push NAME or both")
	}
	return nil
}

// write writes the image to a file, pushes it, or both.
func (o *output) write(c *cobra.Command, i v1.Image) error {
	if o.tar != "" {
		name := o.name
		if o.push != "" && !c.Flags().Changed("name") {
			name = o.push
		}
		if err := image.WriteFile(o.tar, image.Image{Name: name, Image: i}); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "Wrote %s: the image %s.\n", o.tar, name)
	}
	if o.push == "" {
		return nil
	}
	return o.send(c, o.push, i)
}

func (o *output) send(c *cobra.Command, to string, i v1.Image) error {
	digest, err := image.Push(c.Context(), to, i, nil, image.WithPlain(o.plain...))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "Pushed %s: %s\n", to, digest)
	return nil
}

func newBaseCommand() *cobra.Command {
	var to output
	var from source
	c := &cobra.Command{
		Use:   "base",
		Short: "Build the base image of functions",
		Long: `base builds an image with Debian's C library, certificates and time zones, ONNX
Runtime and the program faas-infer, which serves a model or runs a function's program.
It has a shell only with --shell and Python only with --python. Its user is not root.`,
		Example: `  faas-infer-kubernetes image base --push registry.example.com/faas-infer/base:latest
  faas-infer-kubernetes image base --shell --tar base.tar`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			i, err := from.make(c.Context())
			if err != nil {
				return err
			}
			return to.write(c, i)
		},
	}
	to.register(c.Flags(), "faas-infer/base:latest")
	from.register(c.Flags())
	return c
}

func newProviderImageCommand() *cobra.Command {
	var to output
	var from source
	var program string
	c := &cobra.Command{
		Use:   "provider",
		Short: "Build the provider's image",
		Long: `provider builds the image of this program on the base image of functions, so a node
stores the common layers once.`,
		Example: `  faas-infer-kubernetes image provider --push registry.example.com/faas-infer/provider:latest
  faas-infer-kubernetes image provider --base base.tar --tar provider.tar`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			if program == "" {
				var err error
				if program, err = os.Executable(); err != nil {
					return err
				}
			}
			below, err := from.image(c.Context(), to.plain)
			if err != nil {
				return err
			}
			i, err := debian.ForProvider(below, program)
			if err != nil {
				return err
			}
			return to.write(c, i)
		},
	}
	to.register(c.Flags(), "faas-infer/provider:latest")
	from.registerBase(c.Flags())
	c.Flags().StringVar(&program, "provider-program", "", "the program faas-infer-kubernetes (default: this one)")
	return c
}

func newFunctionImageCommand() *cobra.Command {
	var to output
	var from source
	c := &cobra.Command{
		Use:   "function BUNDLE|MODEL.onnx",
		Short: "Build the image of a function from a bundle or an ONNX model",
		Long: `function builds a function's image from a directory with a bundle.yaml, as "faas-infer
bundle" writes it, or from an ONNX file with its files of weights. A program's image serves on port 8080 without arguments. A model that runs in
Python needs a base with --python. Its requirements are installed on this machine, with
the same version of Python, and get a layer of their own.`,
		Example: `  faas-infer-kubernetes image function mnist.onnx --push registry.example.com/team/mnist:v1
  faas-infer-kubernetes image function ./greet --base registry.example.com/faas-infer/base:latest --push registry.example.com/team/greet:v1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := to.check(); err != nil {
				return err
			}
			b, done, err := openBundle(args[0])
			if err != nil {
				return err
			}
			defer done()
			below, err := from.image(c.Context(), to.plain)
			if err != nil {
				return err
			}
			i, err := onBase(c.Context(), below, b)
			if err != nil {
				return err
			}
			if to.name == "" {
				to.name = "faas-infer/" + strings.ToLower(b.Name) + ":latest"
			}
			return to.write(c, i)
		},
	}
	to.register(c.Flags(), "")
	c.Flags().Lookup("name").Usage += " (default faas-infer/NAME:latest, by the bundle's name)"
	from.registerBase(c.Flags())
	return c
}
