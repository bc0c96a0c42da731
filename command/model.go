package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// newModelCommand returns "faas-infer model", which makes models of the zoo, converts
// models of other frameworks, shows ONNX files and SavedModels, checks objectives, writes
// bundles, and makes and measures variants.
func newModelCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "model",
		Short: "Make, convert, show and check models, and make variants of them",
		Long: `A function's image names a bundle: a directory with an ONNX model and a small
manifest. These commands make models for experiments, convert models of other
frameworks, show an ONNX file or a TensorFlow SavedModel, find the objectives that a
model can meet here, and make and measure variants of a model. "faas-infer bundle" writes
bundles.`,
		Example: `  faas-infer model make resnet-50 --out resnet-50.onnx
  faas-infer model convert trained.keras trained.onnx
  faas-infer model show resnet-50.onnx --batch 8
  faas-infer bundle mnist --image mnist:latest`,
	}
	c.AddCommand(newModelMakeCommand(), newModelShowCommand(), newModelReadCommand(), newModelCheckCommand(), newModelConvertCommand(), newModelBundleCommand(), newModelAlikeCommand(), newModelTextsCommand())
	return c
}

func newModelMakeCommand() *cobra.Command {
	var (
		out  string
		seed uint64
		list bool
	)
	c := &cobra.Command{
		Use:   "make NAME",
		Short: "Write an architecture of the INFless or Gillis paper with random weights",
		Long: `make writes an ONNX model of an architecture with random weights and a dynamic batch
dimension. Latency depends on the architecture and not on the weights, so the model is
good for benchmarks and demonstrations. The same seed gives the same file.

The architectures are those of INFless Table 1 and the large ones of Gillis. rnn-N has any
number N of layers, such as rnn-12. The weights of a model above 1 GiB are in a second
file, FILE.data, which must stay beside the first.`,
		Example: `  faas-infer model make --list
  faas-infer model make mnist
  faas-infer model make bert --out bert.onnx --seed 7
  faas-infer model make wrn-50-5`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(zoo.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			if list {
				return listZoo(c.OutOrStdout())
			}
			if len(args) == 0 {
				return fmt.Errorf("NAME is missing: give one of %s, or --list", strings.Join(zoo.Names(), ", "))
			}
			m, err := zoo.Make(args[0], seed)
			if err != nil {
				return err
			}
			if out == "" {
				out = m.Name() + ".onnx"
			}
			if err := m.WriteFile(out); err != nil {
				return err
			}
			wrote := out
			if data := m.DataFile(out); data != "" {
				wrote += " and its weights in " + data
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote %s. Show it with `faas-infer model show %s`.\n", wrote, out)
			return nil
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "file to write (default NAME.onnx)")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of the random weights")
	c.Flags().BoolVar(&list, "list", false, "list the models with their sizes and those in the paper's table")
	return c
}

// listZoo prints every model's figures. It makes their graphs, not their weights.
func listZoo(w io.Writer) error {
	t := &report.Table{Columns: []report.Column{{Title: "NAME"}, {Title: "SIZE"}, {Title: "TABLE 1"}, {Title: "GFLOPS"}, {Title: "TABLE 1"}, {Title: "DESCRIPTION", Long: true}}}
	for _, a := range zoo.All() {
		m, err := zoo.Make(a.Name, 1)
		if err != nil {
			return err
		}
		if m, _, err = m.Sized(nil); err != nil {
			return err
		}
		g, err := m.Graph(1)
		if err != nil {
			return err
		}
		t.Add(a.Name, mebibytes(g.ParameterBytes), dash(a.TableSize), giga(g.FLOPs), dash(tableGFLOPs(a)), a.Description)
	}
	return t.Write(w, false)
}

func newModelShowCommand() *cobra.Command {
	var (
		batch     int
		signature string
		asJSON    bool
		sizes     profile.SizeFlags
	)
	c := &cobra.Command{
		Use:   "show FILE|DIR",
		Short: "Print a model's operators, shapes, parameters and GFLOPs",
		Long: `show prints the operators of an ONNX model in the order in which they run, with
their output shapes at a batch size, their parameters and their GFLOPs. With --shapes,
the free dimensions of the inputs have these sizes. A
multiply-add counts once, as in INFless Table 1 for ResNet-50.

For a TensorFlow SavedModel, which is a directory, show prints the inputs, outputs and
weights of one signature, and counts its operators by kind. For its shapes and GFLOPs,
convert it with "faas-infer model convert" and show the ONNX model. Of a bundle or a folder whose model takes texts,
show prints the ONNX model, and what it does with texts.`,
		Example: `  faas-infer model show mnist.onnx
  faas-infer model show mnist.onnx --batch 32 --json
  faas-infer model show exported/1 --signature serving_default`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			file, texts, err := textsModel(args[0])
			if err != nil {
				return err
			}
			if info, err := os.Stat(file); err == nil && info.IsDir() {
				return showSaved(c.OutOrStdout(), file, signature, asJSON)
			}
			if signature != "" {
				return fmt.Errorf("--signature is for a SavedModel, which is a directory, and %s is not: leave it out", args[0])
			}
			m, err := readModel(file)
			if err != nil {
				return err
			}
			if m, err = sizes.Size(m); err != nil {
				return err
			}
			g, err := m.Graph(batch)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(g)
			}
			if err := showGraph(c.OutOrStdout(), m, g); err != nil || texts == nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "texts       it %s\n", texts.Describe())
			return err
		},
	}
	c.Flags().IntVarP(&batch, "batch", "b", 1, "batch size to infer the shapes for")
	sizes.Add(c.Flags())
	c.Flags().StringVar(&signature, "signature", "", "signature of a SavedModel (default serving_default, or the only one)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// textsModel returns the ONNX file of a bundle or folder whose model takes texts, and how it takes them; the argument
// itself and nil for anything else.
func textsModel(argument string) (file string, texts *bundle.Text, err error) {
	texts, err = profile.Texts(argument)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", argument, err)
	}
	if texts == nil {
		return argument, nil, nil
	}
	file, err = profile.ModelFile(argument)
	return file, texts, err
}

func showGraph(w io.Writer, m *model.Model, g *model.Graph) error {
	t := &report.Table{Columns: []report.Column{{Title: "OPERATOR"}, {Title: "TYPE"}, {Title: "OUTPUT"}, {Title: "PARAMETERS"}, {Title: "MFLOPS"}}}
	for _, op := range g.Operators {
		var outputs []string
		for _, o := range op.Outputs {
			outputs = append(outputs, dimensions(o.Shape))
		}
		t.Add(op.Name, op.Type, strings.Join(outputs, " "), op.Parameters, fmt.Sprintf("%.3f", float64(op.FLOPs)/1e6))
	}
	if err := t.Write(w, false); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: %d operators at a batch of %d\n", m.Name(), len(g.Operators), g.Batch)
	for _, v := range g.Inputs {
		fmt.Fprintf(w, "input       %s %s %s\n", v.Name, v.Type, dimensions(v.Shape))
	}
	for _, v := range g.Outputs {
		fmt.Fprintf(w, "output      %s %s %s\n", v.Name, v.Type, dimensions(v.Shape))
	}
	fmt.Fprintf(w, "parameters  %d, %s\n", g.Parameters, mebibytes(g.ParameterBytes))
	fmt.Fprintf(w, "GFLOPs      %s, %s an item (a multiply-add counted once)\n", giga(g.FLOPs), giga(g.FLOPs/int64(g.Batch)))
	if a, ok := zoo.Find(m.Name()); ok && a.TableSize != "" {
		fmt.Fprintf(w, "Table 1     %s, %s GFLOPs (INFless). %s\n", a.TableSize, tableGFLOPs(a), a.Note)
	} else if ok && a.Note != "" {
		fmt.Fprintf(w, "note        %s\n", a.Note)
	}
	if len(g.Unknown) > 0 {
		fmt.Fprintf(w, "not known   the shapes or GFLOPs of %s\n", strings.Join(g.Unknown, ", "))
	}
	if len(g.ControlFlow) > 0 {
		fmt.Fprintf(w, "decided     while it runs, what is executed inside %s\n", strings.Join(g.ControlFlow, ", "))
	}
	return nil
}

// writeBundle writes a bundle from a source: the name of a model of the zoo, or a file.
func writeBundle(root, image string, manifest bundle.Manifest, source string, seed uint64) (*bundle.Bundle, error) {
	if _, known := zoo.Find(source); !known {
		if _, err := os.Stat(source); err != nil && !strings.ContainsAny(source, "/.") {
			return nil, fmt.Errorf("%q is neither a file nor a model of the zoo: give a file or one of %s", source, strings.Join(zoo.Names(), ", "))
		}
		if manifest.Name == "" {
			manifest.Name = strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
		}
		return bundle.WriteFile(root, image, manifest, source)
	}
	m, err := zoo.Make(source, seed)
	if err != nil {
		return nil, err
	}
	return bundle.Write(root, image, manifest, m)
}
