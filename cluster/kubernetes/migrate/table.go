package migrate

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Table writes a plan: one line for each function, and what cannot be carried over.
func Table(w io.Writer, steps []Step) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FUNCTION\tNAMESPACE\tFROM\tIMAGE\tPODS\tTO DO")
	for _, s := range steps {
		pods, _ := s.pods()
		from, image := string(s.Source), s.Spec.Image
		if from == "" {
			from = "-"
		}
		if image == "" {
			image = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", s.Name, s.Namespace, from, image, pods, s)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range steps {
		if s.Action == Refuse || s.undo {
			continue
		}
		for _, lost := range s.Lost {
			if _, err := fmt.Fprintf(w, "%s.%s is not given %s\n", s.Name, s.Namespace, lost); err != nil {
				return err
			}
		}
	}
	return nil
}
