package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// NewBundleCommand is `faas-infer bundle`: a directory becomes what an image's
// name stands for.
func NewBundleCommand() *cobra.Command {
	var (
		root, image string
		manifest    bundle.Manifest
	)
	c := &cobra.Command{
		Use:   "bundle DIR --image NAME",
		Short: "Make a directory the bundle of an image, for an ordinary function",
		Long: `Copies a directory to where the image's name is looked for: the image greet:v1 is
ROOT/greet/v1. A bundle that is there already is replaced; instances that run from
it go on with the old one.

The directory's bundle.yaml says what runs; the flags write it or change it. The process is a command whose first word is a file of the directory, as
./handler, or a program of the machine. In mode http it is a web server at $PORT;
in modes streaming and classic it is started for each request and has the body as
its input.

For models there is "faas-infer model bundle".`,
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
	flags.StringVar(&root, "root", "bundles", "directory of bundles, that of the provider")
	flags.StringVar(&image, "image", "", "image that the bundle is for, as greet:v1 (required)")
	flags.StringVar(&manifest.Process, "process", "", "command that answers requests, as ./handler")
	flags.StringVar(&manifest.Mode, "mode", "", "http, streaming or classic (default streaming)")
	flags.StringVar(&manifest.UpstreamURL, "upstream-url", "", "where the process listens in mode http, if not at $PORT")
	flags.StringToStringVar(&manifest.Env, "env", nil, "variables of the process's environment, as NAME=VALUE")
	flags.StringVar(&manifest.Network, "network", "", "host, or private for a loopback interface of each instance's own (default host)")
	flags.StringVar(&manifest.Name, "name", "", "name in the manifest (default the image's)")
	flags.StringVar(&manifest.Description, "description", "", "description in the manifest")
	if err := c.MarkFlagRequired("image"); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}
