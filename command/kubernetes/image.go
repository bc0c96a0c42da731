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

// NewImageCommand returns "faas-infer-kubernetes image": container images with no
// container engine.
func NewImageCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Build container images of functions and of the provider with no container engine",
		Long: `On Kubernetes a function's image is a container image in a registry. These commands
make such images of bundles, and the provider's own, out of Debian's packages and the
programs beside this one; nothing but apt is needed. The same files make the same
image. Credentials for registries are those of docker's or podman's login.`,
		Example: `  faas-infer-kubernetes image base --push registry.example.com/faas-infer/base:latest
  faas-infer-kubernetes image function mnist.onnx --base registry.example.com/faas-infer/base:latest --push registry.example.com/team/mnist:v1
  faas-infer-kubernetes image provider --tar provider.tar`,
	}
	c.AddCommand(newBaseCommand(), newProviderImageCommand(), newFunctionImageCommand(), newPushCommand())
	return c
}

// output is where an image goes.
type output struct {
	tar, push, name string
	plain           []string
}

func (o *output) register(flags *pflag.FlagSet, name string) {
	flags.StringVar(&o.tar, "tar", "", "file to write, an OCI image layout in a tar, for ctr, podman and docker to load")
	flags.StringVar(&o.push, "push", "", "image's name in the registry to send it to, as registry.example.com/team/name:tag")
	flags.StringVar(&o.name, "name", name, "image's name in the file of --tar, where it is not that of --push")
	flags.StringSliceVar(&o.plain, "plain-registry", nil, "registries, as registry.example.com:5000, that have no TLS; private addresses need not be named")
}

func (o *output) check() error {
	if o.tar == "" && o.push == "" {
		return errors.New("where is the image to go? Give --tar FILE, --push NAME or both")
	}
	return nil
}

// write writes the image, sends it, or both.
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
		Short: "Make the image that functions are built on",
		Long: `Makes an image of Debian's C library, certificates and time zones, ONNX Runtime and
the program faas-infer, which serves a model or runs a function's program. It has no
shell unless --shell, no Python unless --python, and its user is not root.`,
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
		Short: "Make the provider's image",
		Long: `Makes the image of this program, on the one that functions are built on, so that a
node keeps what they have in common once.`,
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
		Short: "Make the image of a function from a bundle or an ONNX model",
		Long: `Makes a function's image of a directory with a bundle.yaml, as "faas-infer bundle"
and "faas-infer model bundle" write them, or of an ONNX file with the files in which
it keeps weights. A program's image serves on port 8080 without arguments. A model that
runs in Python needs a base with --python; what it requires is installed here, with a
Python of the same version, and gets a layer of its own.`,
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

func newPushCommand() *cobra.Command {
	var to output
	c := &cobra.Command{
		Use:   "push FILE.tar NAME",
		Short: "Send the image in a tar to a registry",
		Example: `  faas-infer-kubernetes image base --tar base.tar
  faas-infer-kubernetes image push base.tar registry.example.com/faas-infer/base:latest`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			images, err := image.ReadFile(args[0])
			if err != nil {
				return err
			}
			if len(images) > 1 {
				return fmt.Errorf("%s has %d images; push takes a file of one", args[0], len(images))
			}
			return to.send(c, args[1], images[0].Image)
		},
	}
	c.Flags().StringSliceVar(&to.plain, "plain-registry", nil, "registries, as registry.example.com:5000, that have no TLS; private addresses need not be named")
	return c
}
