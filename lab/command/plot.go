package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
)

// newPlotCommand returns "faas-infer-lab plot", which draws what commands of faas-infer print.
func newPlotCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plot",
		Short: "Draw the blocks of a model, its variants, or how it is cut",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newPlotLayersCommand(), newPlotVariantsCommand(), newPlotPartitionCommand())
	return c
}

// newPlotVariantsCommand returns "faas-infer-lab plot variants".
func newPlotVariantsCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "variants DIR",
		Short: "Draw accuracy over latency of the variants that model variants has made of a bundle",
		Example: `  faas-infer model variants photos
  faas-infer-lab plot variants photos --out variants.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := os.ReadFile(filepath.Join(args[0], registration.Dir, registration.File))
			if err != nil {
				return fmt.Errorf("%w: run faas-infer model variants %s first", err, args[0])
			}
			registered, err := registration.Read(text)
			if err != nil {
				return err
			}
			return plot.WriteFile(out, drawVariants(filepath.Base(args[0]), registered))
		},
	}
	c.Flags().StringVar(&out, "out", "variants.svg", "file for the drawing (SVG)")
	return c
}

// drawVariants draws accuracy over latency, or agreement with the original if no accuracy is
// known.
func drawVariants(name string, registered *registration.Registration) plot.Figure {
	label := "agreement with the original [%]"
	for i := range registered.Variants {
		if registered.Variants[i].Percent() > 0 {
			label = "accuracy [%]"
		}
	}
	panel := plot.Panel{X: plot.Axis{Label: "time of a row on one core [ms]", Log: true}, Y: plot.Axis{Label: label}}
	for i := range registered.Variants {
		v := &registered.Variants[i]
		y := v.Percent()
		switch {
		case !strings.HasPrefix(label, "agreement"):
			if y == 0 {
				continue // It is unknown.
			}
		case v.Agreement != nil:
			y = v.Agreement.Value
		default:
			y = 100
		}
		panel.Series = append(panel.Series, plot.Series{Name: v.Name, Mark: plot.Dots, Colour: i, Points: []plot.Point{{X: v.LatencyMS, Y: y, Says: fmt.Sprintf("%.1f %%", y)}}})
	}
	return plot.Figure{Title: "Variants of " + name, Note: registered.Machine, Panels: []plot.Panel{panel}, Columns: 1}
}
