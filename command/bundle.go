package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// newBundleCommand returns "faas-infer bundle", which makes a directory the bundle of an
// image.
func newBundleCommand() *cobra.Command {
	var (
		root, image string
		manifest    bundle.Manifest
	)
	c := &cobra.Command{
		Use:   "bundle DIR --image NAME",
		Short: "Make a directory the bundle of an image, for an ordinary function",
		Long: `bundle copies a directory to the place of an image: the image greet:v1 is ROOT/greet/v1.
It replaces an existing bundle; running instances keep the old one.

The directory's bundle.yaml says what runs; the flags write or change it. The first
word of the process's command is a file of the directory, such as ./handler, or a
program of the machine. In mode http the process is a web server at $PORT. In modes
streaming and classic it starts for each request and reads the body from its input.

For models, use "faas-infer model bundle".`,
		Example: `  faas-infer bundle ./greet --image greet:v1 --process ./handler --mode http
  faas-infer bundle ./words --image words --process "wc -w" --mode classic`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := bundle.WriteDir(root, image, args[0], manifest)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote %s. Deploy it with `image: %s` in stack.yml.\n", b.Dir, image)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&root, "root", "bundles", "directory of bundles, the same as the provider's --bundles")
	flags.StringVar(&image, "image", "", "image of the bundle, such as greet:v1 (required)")
	flags.StringVar(&manifest.Process, "process", "", "command that answers requests, such as ./handler")
	flags.StringVar(&manifest.Mode, "mode", "", "http, streaming or classic (default streaming)")
	flags.StringVar(&manifest.UpstreamURL, "upstream-url", "", "where the process listens in mode http, if not at $PORT")
	flags.StringToStringVar(&manifest.Env, "env", nil, "variables of the process's environment: NAME=VALUE")
	flags.StringVar(&manifest.Network, "network", "", "host, or private to give each instance only a loopback interface of its own (default host)")
	flags.StringVar(&manifest.Name, "name", "", "name in the manifest (default the image's)")
	flags.StringVar(&manifest.Description, "description", "", "description in the manifest")
	if err := c.MarkFlagRequired("image"); err != nil {
		panic(err) // The flag is defined above.
	}
	return c
}
