package profile

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/database"
)

// listedMachine is the part of "profile list --json" for one engine on one machine.
type listedMachine struct {
	Machine   string         `json:"machine"`
	Engine    string         `json:"engine"`
	Used      bool           `json:"used"`
	Operators int            `json:"operators"`
	Rows      int            `json:"rows"`
	Noisy     int            `json:"noisyRows"`
	Oldest    time.Time      `json:"oldest"`
	Newest    time.Time      `json:"newest"`
	Families  map[string]int `json:"families"`
}

// listed is the output of "profile list --json".
type listed struct {
	Database   string                `json:"database"`
	Machine    string                `json:"machine"`
	Engine     string                `json:"engine"`
	Rows       int                   `json:"rows"`
	Machines   []listedMachine       `json:"machines"`
	Provenance []database.Provenance `json:"provenance"`
	Damaged    []string              `json:"damaged"`
}

func newProfileListCommand() *cobra.Command {
	var (
		path   string
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "list",
		Short: "List the operators' profiles: engines, machines, rows by family",
		Long: `list shows the machines and engines of the operators' profiles, and the number of
rows for each family of operators. Predictions use only the rows of this machine and
this version of the engine. Noisy rows were measured while the machine was busy.`,
		Example: "  faas-infer profile list\n  faas-infer profile list --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			db, from, damage, err := loadOperators(c, path)
			if err != nil {
				return err
			}
			l := listOperators(db, from, damage)
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(l)
			}
			return l.print(c.OutOrStdout())
		},
	}
	DatabaseFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func listOperators(db *database.Database, path string, damage []database.Damage) listed {
	l := listed{
		Database: path, Machine: report.Machine(), Engine: onnxruntime.Name(), Rows: db.Len(),
		Machines: []listedMachine{}, Provenance: append([]database.Provenance{}, db.Provenance()...), Damaged: []string{},
	}
	for _, m := range db.Machines() {
		l.Machines = append(l.Machines, listedMachine{m.Machine, m.Engine, used(m), m.Operators, m.Rows, m.Noisy, m.Oldest, m.Newest, m.Families})
	}
	for _, d := range damage {
		l.Damaged = append(l.Damaged, d.String())
	}
	return l
}

func (l listed) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d rows\n", l.Database, l.Rows)
	if l.Rows == 0 {
		fmt.Fprintln(w, "Measure some with faas-infer profile operators, or add those of a file with faas-infer profile import.")
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if l.Rows > 0 {
		fmt.Fprint(t, "\nMACHINE\tENGINE\tOPERATORS\tROWS\tNOISY\tMEASURED\tUSED HERE\n")
	}
	for _, m := range l.Machines {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s – %s\t%s\n", m.Machine, m.Engine, m.Operators, m.Rows, m.Noisy,
			m.Oldest.Format(time.DateOnly), m.Newest.Format(time.DateOnly), map[bool]string{true: "yes", false: "no"}[m.Used])
	}
	for _, m := range l.Machines {
		fmt.Fprintf(t, "\n%s, %s\nFAMILY\tROWS\n", m.Machine, m.Engine)
		for _, family := range slices.Sorted(maps.Keys(m.Families)) {
			fmt.Fprintf(t, "%s\t%d\n", family, m.Families[family])
		}
	}
	if len(l.Provenance) > 0 {
		fmt.Fprint(t, "\nImported\n")
	}
	for _, p := range l.Provenance {
		fmt.Fprintf(t, "  %s\n", provenance(p))
	}
	return t.Flush()
}

// provenance describes the origin of imported rows for people.
func provenance(p database.Provenance) string {
	text := "exported " + p.ExportedAt.Format(time.DateTime)
	if p.Machine != "" {
		text += " on " + p.Machine
	}
	if p.Commit != "" {
		text += fmt.Sprintf(" by %.12s", p.Commit)
	}
	if p.Note != "" {
		text += ": " + p.Note
	}
	return text
}
