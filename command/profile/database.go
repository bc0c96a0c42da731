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

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// operatorsPath is where operators' profiles are, unless path says otherwise.
func operatorsPath(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	return operators.DefaultPath()
}

// DatabaseFlag adds --database.
func DatabaseFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "database", "", "file of operators' profiles (default: operators.jsonl in the user's state directory)")
}

// loadOperators reads a database and warns of what is damaged in it.
func loadOperators(c *cobra.Command, path string) (*database.Database, string, []database.Damage, error) {
	path, err := operatorsPath(path)
	if err != nil {
		return nil, "", nil, err
	}
	db, damage, err := operators.Load(path)
	if err == nil && len(damage) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%s is damaged and will be repaired when rows are added; what is whole is used.\n%s", path, damaged(damage))
	}
	return db, path, damage, err
}

// maxDamage is how many damaged lines are named.
const maxDamage = 10

// damaged names the first of the damaged lines, each on a line.
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

// used reports whether rows of m are used on this machine.
func used(m database.Machine) bool {
	return m.Engine == onnxruntime.Name() && m.Machine == report.Machine()
}

func newProfileExportCommand() *cobra.Command {
	var (
		path, engine, machine, note string
		force                       bool
	)
	c := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Write operators' profiles to a file for another machine",
		Long: `export writes the operators' profiles of this database, all or those of one engine
or machine, to one file, or to the standard output. faas-infer profile import reads
it. Each row names its engine and machine and has a checksum.`,
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
				return fmt.Errorf("%s has no such rows; faas-infer profile list shows what there is, faas-infer profile operators measures", from)
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
	c.Flags().StringVar(&engine, "engine", "", "only rows of this engine, as \"onnxruntime 1.31.1\"")
	c.Flags().StringVar(&machine, "machine", "", "only rows of this machine, as faas-infer profile list names it")
	c.Flags().StringVar(&note, "note", "", "what to say of where the rows come from; goes with them")
	c.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return c
}

// writeExport puts a file at path, but never in the place of the database.
func writeExport(path, from string, text []byte, force bool) error {
	if there, err := os.Stat(path); err == nil {
		if db, err := os.Stat(from); err == nil && os.SameFile(there, db) {
			return fmt.Errorf("%s is the database itself; give another file", path)
		}
		if !there.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file; give no file, or -, for the standard output", path)
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
		Short: "Add operators' profiles from a file that export has written",
		Long: `import adds the rows of FILE (- for the standard input) to this database. Of two
rows of one thing the one measured later stays. Rows of another machine, or of
another version of the engine, are kept and listed, but no model is predicted from
them here. Damaged lines are named and left out.`,
		Example: `  faas-infer profile import operators.jsonl
  faas-infer profile import - < operators.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := operatorsPath(path)
			if err != nil {
				return err
			}
			from, damage, err := readImport(c, args[0])
			if err != nil {
				return err
			}
			if from.Len() == 0 {
				return fmt.Errorf("there is no whole row in %s; nothing was imported", args[0])
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
				return fmt.Errorf("%d lines of %s are damaged and were left out, all others have been imported:\n%s", len(damage), args[0], strings.TrimRight(damaged(damage), "\n"))
			}
			return nil
		},
	}
	DatabaseFlag(c, &path)
	return c
}

func readImport(c *cobra.Command, name string) (*database.Database, []database.Damage, error) {
	if name != "-" {
		// Load takes an absent file for an empty one.
		if _, err := os.Stat(name); err != nil {
			return nil, nil, fmt.Errorf("import: %w", err)
		}
		return operators.Load(name)
	}
	text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), operators.MaxSize+1))
	if err == nil && len(text) > operators.MaxSize {
		err = fmt.Errorf("more than %d MiB", operators.MaxSize>>20)
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
		use := "used here: they name this engine and machine"
		if !used(m) {
			use, others = "kept, not used here", true
		}
		fmt.Fprintf(w, "  %s, %s: %d rows of %d operators, %s\n", m.Machine, m.Engine, m.Rows, m.Operators, use)
	}
	fmt.Fprintf(w, "%d rows are new, %d take the place of older ones, %d are older than those here, %d were here.\n", m.Added, m.Replaced, m.Older, m.Same)
	if others {
		fmt.Fprintf(w, "Nothing is predicted here from rows of another engine or machine; this is %s, %s.\n", report.Machine(), onnxruntime.Name())
	}
}
