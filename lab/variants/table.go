package variants

import (
	"bytes"
	"embed"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
)

//go:embed *.csv
var files embed.FS

// names lists the built-in tables that are files. The other one is [Zoo]'s.
var names = []string{"infaas-table2", "infaas-fig6", "infaas-fig6-table2", "infaas-fig7"}

// zoo is the name of the table that [Zoo] makes.
const zoo = "infaas-175"

// Tables lists the built-in tables.
func Tables() []string { return append(slices.Clone(names), zoo) }

// Table returns a built-in table.
func Table(name string) ([]registration.Placed, error) {
	if name == zoo {
		return Zoo(1), nil
	}
	text, err := files.ReadFile(name + ".csv")
	if err != nil {
		return nil, fmt.Errorf("there is no table %q: it is one of %v", name, Tables())
	}
	return infaas.ReadVariants(bytes.NewReader(text))
}
