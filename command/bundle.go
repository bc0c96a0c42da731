package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/textmodel"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// newBundleCommand returns "faas-infer bundle", which makes a model or a directory the bundle of an image.
func newBundleCommand() *cobra.Command {
	var (
		root, image string
		manifest    bundle.Manifest
		seed        uint64
	)
	c := &cobra.Command{
		Use:   "bundle {DIR | FILE | NAME} --image NAME",
		Short: "Make a program's directory, a model's file or a model of the zoo the bundle of an image",
		Long: `bundle writes the directory that an image's name stands for: greet:v1 is ROOT/greet/v1. It
replaces an existing bundle; running instances keep the old one. Without --root it is where
"faas-infer up" finds it.

A name of "faas-infer model make --list" stands for that architecture with random weights. For a directory of
that name write ./NAME. A file is an ONNX model. A directory is copied as a whole. Its bundle.yaml says what
runs, and flags write or change it: the first word of the process's command is a file of the directory, such as
./handler, or a program of the machine. In mode http the process is a web server at $PORT. In modes streaming
and classic it starts for each request and reads the body from its input.

A directory without a bundle.yaml may be that of a model of texts, as sentence-transformers and optimum write it: with
tokenizer.json, modules.json or config.json, and an ONNX model in model.onnx or onnx/model.onnx. Its bundle.yaml
follows from these, and weights for other programs are left out.`,
		Example: `  faas-infer bundle ./greet --image greet:v1 --process ./handler --mode http
  faas-infer bundle ./words --image words --process "wc -w" --mode classic
  faas-infer bundle ./my-model.onnx --image team/my-model:v2
  faas-infer bundle ./all-MiniLM-L6-v2 --image minilm
  faas-infer bundle mnist --image mnist:latest`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return zoo.Names(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(c *cobra.Command, args []string) error {
			if root == "" {
				dir, err := stateDir()
				if err != nil {
					return fmt.Errorf("--root is missing, and there is no default: %w", err)
				}
				root = filepath.Join(dir, "bundles")
				if err := os.MkdirAll(root, 0o755); err != nil {
					return fmt.Errorf("%w; give a directory that this user can write with --root", err)
				}
			}
			write := func() (*bundle.Bundle, error) { return writeBundle(root, image, manifest, args[0], seed) }
			var notes []string
			info, err := os.Stat(args[0])
			if _, known := zoo.Find(args[0]); !known && err == nil && info.IsDir() {
				write = func() (b *bundle.Bundle, err error) {
					b, notes, err = writeFolder(root, image, args[0], manifest)
					return b, err
				}
			} else if manifest.Process != "" {
				return usage(fmt.Errorf("--process %q: it is for a directory, and %s is none; write ./NAME for a directory that is named like a model", manifest.Process, args[0]))
			}
			b, err := write()
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote %s. Deploy it with `image: %s` in stack.yml.\n", b.Dir, image)
			for _, note := range notes {
				fmt.Fprintln(c.OutOrStdout(), note)
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&root, "root", "", "directory of bundles, the same as the provider's --bundles (default $XDG_STATE_HOME/faas-infer/bundles)")
	flags.StringVar(&image, "image", "", "image of the bundle, such as greet:v1 (required)")
	flags.StringVar(&manifest.Process, "process", "", "command that answers requests, such as ./handler")
	flags.StringVar(&manifest.Mode, "mode", "", "http, streaming or classic (default streaming)")
	flags.StringVar(&manifest.UpstreamURL, "upstream-url", "", "where the process listens in mode http, if not at $PORT")
	flags.StringToStringVar(&manifest.Env, "env", nil, "variables of the process's environment: NAME=VALUE")
	flags.StringVar(&manifest.Network, "network", "", "host, or private to give each instance only a loopback interface of its own (default host)")
	flags.StringVar(&manifest.Name, "name", "", "name in the manifest (default the image's or the model's)")
	flags.StringVar(&manifest.Description, "description", "", "description in the manifest (default the model's)")
	flags.Uint64Var(&seed, "seed", 1, "seed of the random weights of a model of the zoo")
	if err := c.MarkFlagRequired("image"); err != nil {
		panic(err) // The flag is defined above.
	}
	return c
}

// writeFolder makes the bundle of an image from a directory. notes are sentences for the user.
func writeFolder(root, image, dir string, over bundle.Manifest) (b *bundle.Bundle, notes []string, err error) {
	_, err = os.Lstat(filepath.Join(dir, bundle.ManifestFile))
	if described := !errors.Is(err, fs.ErrNotExist); described || over.IsProgram() {
		if described && !over.IsProgram() {
			if err := checkTexts(dir); err != nil {
				return nil, nil, err
			}
		}
		b, err = bundle.WriteDir(root, image, dir, over)
		return b, takesTexts(b), err
	}
	folder, err := textmodel.Recognise(dir, dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	if folder == nil {
		b, err = bundle.WriteDir(root, image, dir, over)
		return b, nil, err
	}
	if b, err = textmodel.Write(root, image, dir, folder, over); err != nil {
		return nil, nil, err
	}
	notes = append(takesTexts(b), folder.Notes...)
	if len(folder.Unused) > 0 {
		notes = append(notes, "Left out, because ONNX Runtime does not read them: "+strings.Join(folder.Unused, ", ")+".")
	}
	return b, notes, nil
}

// checkTexts checks the model of a bundle that takes texts. It leaves what is wrong with a bundle to those who write it.
func checkTexts(dir string) error {
	b, err := bundle.OpenDir(dir)
	if err != nil || b.Text == nil {
		return nil
	}
	if err := textmodel.Check(dir, b.Text, b.ModelPath(), 0); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// takesTexts says what a bundle's model does with texts, if it takes any.
func takesTexts(b *bundle.Bundle) []string {
	if b == nil || b.Text == nil {
		return nil
	}
	return []string{"It " + b.Text.Describe() + "."}
}

// newModelBundleCommand returns "faas-infer model bundle", the earlier name of "faas-infer bundle".
func newModelBundleCommand() *cobra.Command {
	c := newBundleCommand()
	c.Hidden = true
	return c
}
