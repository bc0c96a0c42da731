package profile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// DatabasePath returns path, or the usual file of operators' profiles if path is "".
func DatabasePath(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	return operators.DefaultPath()
}

// DatabaseFlag adds --database.
func DatabaseFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "database", "", "file of operators' profiles (default: operators.jsonl in the user's state directory)")
}

// loadOperators reads a database and warns of damaged lines.
func loadOperators(c *cobra.Command, path string) (*database.Database, string, []database.Damage, error) {
	path, err := DatabasePath(path)
	if err != nil {
		return nil, "", nil, err
	}
	db, damage, err := operators.Load(path)
	if err == nil && len(damage) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%s is damaged; its intact rows are used, and it will be repaired when rows are added.\n%s", path, damaged(damage))
	}
	return db, path, damage, err
}

// maxDamage is the maximum number of damaged lines in a message.
const maxDamage = 10

// damaged describes the first damaged lines, one per line.
func damaged(all []database.Damage) string {
	var b strings.Builder
	for _, d := range all[:min(len(all), maxDamage)] {
		fmt.Fprintf(&b, "  %v\n", d)
	}
	if more := len(all) - maxDamage; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

// used reports whether predictions here use the rows of m. Those of a GPU are used for models on
// shares of such a GPU, whose node need not be this machine.
func used(m database.Machine) bool {
	return m.Engine == onnxruntime.Name() && m.Machine == report.Machine() || m.Engine == shares.EngineName()
}

func newProfileExportCommand() *cobra.Command {
	var (
		path, engine, machine, note string
		force                       bool
	)
	c := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Write operators' profiles to a file for another machine",
		Long: `export writes the operators' profiles of this database to a file or to the standard
output: all of them, or those of one engine or machine. "faas-infer profile import"
reads the file. Each row names its engine and machine and has a checksum.`,
		Example: `  faas-infer profile export operators.jsonl --note "quiet machine, night run"
  faas-infer profile export --machine "AMD EPYC × 2" | ssh host faas-infer profile import -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			db, from, _, err := loadOperators(c, path)
			if err != nil {
				return err
			}
			keep := func(e, m string) bool { return (engine == "" || e == engine) && (machine == "" || m == machine) }
			sets := slices.DeleteFunc(db.Machines(), func(m database.Machine) bool { return !keep(m.Engine, m.Machine) })
			if len(sets) == 0 {
				return fmt.Errorf("%s has no such rows; list its rows with faas-infer profile list, or measure with faas-infer profile operators", from)
			}
			r := report.New("", time.Now())
			text, err := db.Export(database.Provenance{ExportedAt: time.Now(), Commit: r.Commit, Machine: r.Machine, Note: note}, keep)
			if err != nil {
				return err
			}
			if len(args) == 0 || args[0] == "-" {
				_, err := c.OutOrStdout().Write(text)
				return err
			}
			if err := writeExport(args[0], from, text, force); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Wrote %s:\n", args[0])
			for _, m := range sets {
				fmt.Fprintf(c.OutOrStdout(), "  %s, %s: %d rows of %d operators\n", m.Machine, m.Engine, m.Rows, m.Operators)
			}
			return nil
		},
	}
	DatabaseFlag(c, &path)
	c.Flags().StringVar(&engine, "engine", "", "only rows of this engine, such as \"onnxruntime 1.32.0\"")
	c.Flags().StringVar(&machine, "machine", "", "only rows of this machine, by its name in faas-infer profile list")
	c.Flags().StringVar(&note, "note", "", "note on the origin of the rows, which is exported with them")
	c.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return c
}

// writeExport writes a file at path. It never replaces the database itself.
func writeExport(path, from string, text []byte, force bool) error {
	if there, err := os.Stat(path); err == nil {
		if db, err := os.Stat(from); err == nil && os.SameFile(there, db) {
			return fmt.Errorf("%s is the database itself; give another file", path)
		}
		if !there.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file; leave it out, or give -, for the standard output", path)
		}
		if !force {
			return fmt.Errorf("%s exists; give --force to replace it", path)
		}
	}
	if err := operators.Replace(path, text, 0o644); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

func newProfileImportCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Add operators' profiles from an exported file",
		Long: `import adds the rows of FILE (- for the standard input) to this database. Of two
rows for the same measurement, the later one stays. Rows of another machine or another
version of the engine are kept and listed, but predictions on this machine do not use
them. import reports damaged lines and leaves them out.`,
		Example: `  faas-infer profile import operators.jsonl
  faas-infer profile import - < operators.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := DatabasePath(path)
			if err != nil {
				return err
			}
			from, damage, err := readImport(c, args[0])
			if err != nil {
				return err
			}
			if from.Len() == 0 {
				return fmt.Errorf("%s has no intact row; nothing was imported", args[0])
			}
			file, err := operators.Open(to, func(r operators.Repair) { fmt.Fprintln(c.ErrOrStderr(), r) })
			if err != nil {
				return err
			}
			merged, err := file.Import(from)
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			printImport(c.OutOrStdout(), args[0], to, from, merged)
			if len(damage) > 0 {
				return fmt.Errorf("%d lines of %s are damaged and were left out; all others were imported:\n%s", len(damage), args[0], strings.TrimRight(damaged(damage), "\n"))
			}
			return nil
		},
	}
	DatabaseFlag(c, &path)
	return c
}

func readImport(c *cobra.Command, name string) (*database.Database, []database.Damage, error) {
	if name != "-" {
		// Load treats a missing file as an empty one.
		if _, err := os.Stat(name); err != nil {
			return nil, nil, fmt.Errorf("import: %w", err)
		}
		return operators.Load(name)
	}
	text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), operators.MaxSize+1))
	if err == nil && len(text) > operators.MaxSize {
		err = fmt.Errorf("it has more than %d MiB", operators.MaxSize>>20)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("import from the standard input: %w", err)
	}
	db, damage, err := database.Decode(text)
	if err != nil {
		return nil, nil, fmt.Errorf("import from the standard input: %w", err)
	}
	return db, damage, nil
}

func printImport(w io.Writer, name, to string, from *database.Database, m database.Merged) {
	fmt.Fprintf(w, "Imported %s into %s:\n", name, to)
	for _, p := range from.Provenance() {
		fmt.Fprintf(w, "  %s\n", provenance(p))
	}
	others := false
	for _, m := range from.Machines() {
		use := "used here: they are of this engine and machine"
		switch {
		case m.Engine == shares.EngineName():
			use = "used for models on shares of such a GPU"
		case !used(m):
			use, others = "kept, not used here", true
		}
		fmt.Fprintf(w, "  %s, %s: %d rows of %d operators, %s\n", m.Machine, m.Engine, m.Rows, m.Operators, use)
	}
	fmt.Fprintf(w, "%d rows are new, %d replace older ones, %d are older than those here, %d were here already.\n", m.Added, m.Replaced, m.Older, m.Same)
	if others {
		fmt.Fprintf(w, "Predictions here do not use rows of another engine or machine; this is %s, %s.\n", report.Machine(), onnxruntime.Name())
	}
}
